"""What access rules and quotas cost an append: calls of functions, and processor time of the server.

    python -m benchmarks.access [--rounds 21] [--appends 12800] [--in-flight 16 256] [--rules 1000] [--no-counts]
                                [--json FILE]

Three servers are compared: without rules (``off``), with rules that are enforced (``enforce``), and the same with a
quota that is never exceeded (``quotas``). First the calls of a server for each 1,000 appends, counted in a simulated
cluster: they are the same in every run, on every machine. Then the processor time from the bytes of a read to the
place of the appends in the order, in this process, without network and storages: the three take turns, batch by batch
of as many appends as are in flight, and each round is compared with the round of ``off`` beside it. So a difference is
a larger share here than of a whole server, which also commits. The load of the machine is printed: times are worth
something on a quiet machine only.
"""

import argparse
import asyncio
import contextlib
import functools
import gc
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple
from unittest import mock

from tests.counts.loads import LOADS, Cost, cost_of
from tests.counts.tables import compared
from tests.unit.server.fakes import GENERATION, FakeChannel, req_id
from tests.unit.server.process.test_service import Setup
from waltz.common.access import ALLOW_ALL, Access, Right
from waltz.common.acl.document import Document, Mode, Quota, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.checksum import checksum
from waltz.common.pieces import at_once
from waltz.common.wire import client_server
from waltz.common.wire.append_request import AppendRequest
from waltz.common.wire.frames import CLIENT_SERVER, FrameSplitter
from waltz.server.process.node import WaltzServer

OFF: Final = "off"
VERSION: Final = CLIENT_SERVER.versions[-1]
DATA: Final = bytes(range(128))
PARTITION: Final = 0
MAX_TURNS: Final = 1000
"""Turns of the loop after which appends will never have a place."""
MANY: Final = 1_000_000_000
"""The limit of a quota that is never reached."""


def rules(partition_count: int, others: int, quotas: Sequence[Quota] = ()) -> RuleAccess:
    """The rules of a cluster in which the client may do what clients do, beside rules about so many others."""
    own = Rule(True, "*", (Right.APPEND, Right.READ, Right.CLUSTER), "*")
    foreign = tuple(Rule(True, f"CN=svc-{number}", (Right.APPEND, Right.READ), "0") for number in range(others))
    document = Document(Mode.ENFORCE, rules=(*foreign, own), quotas=tuple(quotas))
    access = RuleAccess(partition_count, lambda subject: subject, [])
    at_once(access.apply(Applied(1, at_once(compile_rules(document, {}, partition_count)))))
    return access


def accesses(partition_count: int, others: int) -> dict[str, Access]:
    """What decides in each of the servers that are compared, by name."""
    quota = Quota("*", "*", appends_per_s=MANY, bytes_per_s=MANY)
    return {
        OFF: ALLOW_ALL,
        "enforce": rules(partition_count, others),
        "quotas": rules(partition_count, others, [quota]),
    }


@contextlib.contextmanager
def _patched(server: Callable[..., WaltzServer]) -> Iterator[None]:
    """The server of the simulated cluster is made so."""
    with mock.patch("tests.simulation.cluster.WaltzServer", server):
        yield


def counted(in_flight: int, others: int) -> dict[str, Cost]:
    """The cost of 1,000 appends by the name of the server."""
    load = LOADS[f"{in_flight} in flight"]
    found = {}
    for name, access in accesses(load.partitions, others).items():
        server = functools.partial(WaltzServer, access=access)
        found[name] = cost_of(load, _patched(server))
    return found


class _Channel(FakeChannel):
    def allow_large_frames(self) -> None: ...

    def send_keep_alive(self) -> None: ...


def _new_channel() -> Any:
    """What a handler needs of a channel is there."""
    return _Channel(VERSION)


class Server:
    """A server without network and storages, and a client that has mounted its partition."""

    def __init__(self, access: Access) -> None:
        self._setup = Setup(access=access)
        self._service = self._setup.service
        self._service.set_partitions({PARTITION: GENERATION})
        self._log = self._setup.made[0].log
        self._log.open_session()
        self._channel = _new_channel()
        self._connection = self._service.connection()
        self._connection.channel_ready(self._channel)
        mount = client_server.MountRequest(req_id(0), -1, 0)
        self._connection.frames_received(self._channel, *_split(client_server.encode(mount, VERSION)))
        self._number = 0

    async def append(self, count: int) -> float:
        """Append a batch; the processor time in seconds until all of it has its place in the order."""
        first, self._number = self._number + 1, self._number + count
        mark = self._log.mark
        frames = b"".join(
            client_server.encode(
                AppendRequest(req_id(number), mark, (number,), (), (), 0, DATA, checksum(DATA)), VERSION
            )
            for number in range(first, first + count)
        )
        buffer, bounds = _split(frames)
        began_s = time.process_time()
        self._connection.frames_received(self._channel, buffer, bounds)
        for _ in range(MAX_TURNS):
            if len(self._log.undecided) == count:
                break
            await asyncio.sleep(0)
        else:
            raise RuntimeError(f"of {count} appends {len(self._log.undecided)} have a place: {self._channel.take()}")
        taken_s = time.process_time() - began_s
        self._log.commit()
        self._log.batches.clear()
        self._channel.take_bytes()
        return taken_s

    async def close(self) -> None:
        """End it."""
        await self._service.close()


def _split(frames: bytes) -> tuple[bytes, Any]:
    return FrameSplitter(CLIENT_SERVER.magic, VERSION).feed(frames)


class Timing(NamedTuple):
    """Processor time of an append."""

    append_us: float
    """The median of the rounds."""
    more_percent: float
    """The median of what it takes more than ``off`` in the same round."""
    spread_percent: float
    """Half of the distance between the quartiles of that."""


async def timed(in_flight: int, others: int, rounds: int, batches: int) -> dict[str, Timing]:
    """The processor time of an append by the name of the server."""
    servers = {name: Server(access) for name, access in accesses(8, others).items()}
    names = list(servers)
    taken_us: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds + 1):
        sums_s = dict.fromkeys(names, 0.0)
        gc.collect()
        gc.disable()
        for batch in range(batches):
            for place in range(len(names)):  # each is as often the first one as any other
                name = names[(batch + place) % len(names)]
                sums_s[name] += await servers[name].append(in_flight)
        gc.enable()
        if number:  # the first round is for what is learnt once
            for name, sum_s in sums_s.items():
                taken_us[name].append(1e6 * sum_s / batches / in_flight)
    for server in servers.values():
        await server.close()
    return {name: _timing(found, taken_us[OFF]) for name, found in taken_us.items()}


def _timing(taken_us: Sequence[float], off_us: Sequence[float]) -> Timing:
    more = [100 * (taken / off - 1) for taken, off in zip(taken_us, off_us, strict=True)]
    quartiles = statistics.quantiles(more, n=4) if len(more) > 1 else [0.0, 0.0, 0.0]
    return Timing(statistics.median(taken_us), statistics.median(more), (quartiles[2] - quartiles[0]) / 2)


def count_lines(in_flight: int, costs: Mapping[str, Cost]) -> list[str]:
    """What a server calls more often than without rules, for people."""
    calls = {name: cost.counts["server"]["calls"] for name, cost in costs.items()}
    lines = [f"{in_flight} in flight: calls of the server for 1,000 appends"]
    lines += [f"  {name:8} {number:>10.10g} {number - calls[OFF]:>+10.10g}" for name, number in calls.items()]
    for name, cost in costs.items():
        if name != OFF:
            server = [
                Cost({"server": each.counts["server"]}, {"server": each.functions["server"]})
                for each in (costs[OFF], cost)
            ]
            lines.append(compared(f"  {name}, by function:", *server))
    return lines


def time_lines(in_flight: int, timings: Mapping[str, Timing]) -> list[str]:
    """Processor times for people."""
    lines = [f"{in_flight} in flight: processor time of an append from the read to its place in the order"]
    for name, timing in timings.items():
        more = "" if name == OFF else f"  {timing.more_percent:+.1f} % (± {timing.spread_percent:.1f})"
        lines.append(f"  {name:8} {timing.append_us:6.3f} µs{more}")
    return lines


def main(arguments: Sequence[str] | None = None, show: Callable[[str], None] = print) -> None:
    """See the module's description."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.access", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=21, help="rounds that are timed (default: 21)")
    parser.add_argument("--appends", type=int, default=12800, help="of each server in a round (default: 12800)")
    parser.add_argument("--in-flight", type=int, nargs="+", default=[16, 256], choices=(1, 16, 256), metavar="N")
    parser.add_argument("--rules", type=int, default=1000, help="rules about other principals (default: 1000)")
    parser.add_argument("--no-counts", action="store_true", help="only the times")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results there, too")
    options = parser.parse_args(arguments)
    results: dict[str, Any] = {"load_before": os.getloadavg()[0], "calls": {}, "times": {}}
    for in_flight in options.in_flight:
        if not options.no_counts:
            costs = counted(in_flight, options.rules)
            results["calls"][in_flight] = {name: cost.counts["server"]["calls"] for name, cost in costs.items()}
            show("\n".join(count_lines(in_flight, costs)))
        timings = asyncio.run(timed(in_flight, options.rules, options.rounds, max(options.appends // in_flight, 1)))
        results["times"][in_flight] = {name: timing._asdict() for name, timing in timings.items()}
        show("\n".join(time_lines(in_flight, timings)))
    results["load_after"] = os.getloadavg()[0]
    show(
        f"load of the machine (1 min): {results['load_before']:.1f} before, {results['load_after']:.1f} after,"
        f" {os.cpu_count()} processors"
    )
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
