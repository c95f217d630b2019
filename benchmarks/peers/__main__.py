"""Waltz beside what else one could append to: durably, in several places, from Python.

    make bench-peers
    python -m benchmarks.peers [--only etcd,waltz] [--sizes 128,4096] [--in-flight 1,16,256] [--seconds 3]
        [--directory DIR]

Nothing is installed: a peer whose programs or Python client are missing is left out, and what to install is printed.
Every peer is started afresh on the loopback interface without TLS, is loaded by the same coroutines, each of which
awaits one append after the other, and is stopped before the next one starts.
"""

import argparse
import os
import tempfile
from pathlib import Path

import uvloop

from benchmarks.peers.etcd import ETCD
from benchmarks.peers.jetstream import JETSTREAM
from benchmarks.peers.load import measure
from benchmarks.peers.peer import Peer, missing
from benchmarks.peers.postgresql import POSTGRESQL
from benchmarks.peers.redis_streams import REDIS
from benchmarks.peers.table import HEADING, row
from benchmarks.peers.waltz_log import WALTZ

PEERS = (WALTZ, ETCD, JETSTREAM, REDIS, POSTGRESQL)


async def run(peer: Peer, options: argparse.Namespace) -> str:
    """Start a peer and print a row for each size and number in flight; what it promised."""
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="waltz-peer-") as directory:
        async with peer.start(Path(directory), max(options.in_flight)) as running:
            for size_bytes in options.sizes:
                for in_flight in options.in_flight:
                    cost = await measure(running, os.urandom(size_bytes), in_flight, options.seconds)
                    print(row(peer.name, size_bytes, in_flight, cost), flush=True)
            return running.promise


def main() -> None:
    """Run the peers that are there, and name what the others need."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_words, default=[], help="beginnings of names, separated by commas")
    parser.add_argument("--sizes", type=_numbers, default=[128, 4096], help="bytes of data per append")
    parser.add_argument("--in-flight", type=_numbers, default=[1, 16, 256])
    parser.add_argument("--seconds", type=float, default=3.0, help="for each measurement")
    parser.add_argument("--directory", type=Path, help="where everybody writes (default: a temporary directory)")
    options = parser.parse_args()
    chosen = [peer for peer in PEERS if not options.only or peer.name.lower().startswith(tuple(options.only))]
    ready = [peer for peer in chosen if not missing(peer)]
    for peer in chosen:
        if peer not in ready:
            print(f"{peer.name} is left out, because of what is missing:")
            print("\n".join(f"    {need}" for need in missing(peer)))
    print(f"\n{HEADING}", flush=True)
    promises = {peer.name: uvloop.run(run(peer, options)) for peer in ready}
    print("\nWhat is true of an append when it is acknowledged:")
    for name, promise in promises.items():
        print(f"* {name}: {promise}.")


def _words(text: str) -> list[str]:
    return text.lower().split(",")


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
