"""Throughput and latency of appends to one partition: one client, one server, three storages with synced writes.

    python -m benchmarks.append [--size 128] [--in-flight 256] [--transactions 60000] [--locks 1]
        [--read-locks 0] [--tls | --plaintext]

Prints, for plaintext and for TLS: transactions per second, latency from submission to application (p50, p99), the CPU
time that each process spent per transaction, and the memory of each process before and after.
"""

import argparse
import asyncio
import os
import tempfile
import time
from pathlib import Path

import uvloop

from waltz.client.builder import TransactionBuilder
from waltz.client.callbacks import WaltzClient
from waltz.client.context import TransactionContext, WaltzClientCallbacks
from waltz.client.locks import PartitionLocalLock
from waltz.client.transaction import Transaction
from waltz.common.config import ClientConfig, load
from waltz.local.cluster import LocalCluster

WARM_UP = 5_000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Callbacks(WaltzClientCallbacks):
    """An application that applies nothing: what is measured is the log."""

    def client_high_water_mark(self, partition_id: int) -> int:
        return -1

    def apply_transaction(self, transaction: Transaction) -> None:
        pass

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        raise error


class Run:
    """The transactions of one measurement, with always ``in_flight`` of them under way."""

    def __init__(self, client: WaltzClient, transactions: int, options: argparse.Namespace, first_lock: int) -> None:
        self.client = client
        self.left = transactions
        self.undecided = transactions
        self.payload = os.urandom(options.size)
        self.write_lock_count: int = options.locks
        self.lock_count: int = options.locks + options.read_locks
        self.next_lock = first_lock
        self.latencies: list[float] = []
        self.retries = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.places = asyncio.Semaphore(options.in_flight)

    async def __call__(self) -> float:
        """Seconds that it took."""
        started = time.perf_counter()
        while self.left:
            self.left -= 1
            await self.places.acquire()
            await self.client.submit(Context(self))
        await self.done
        return time.perf_counter() - started

    def applied(self, latency_s: float) -> None:
        self.latencies.append(latency_s)
        self.places.release()
        self.undecided -= 1
        if not self.undecided:
            self.done.set_result(None)


class Context(TransactionContext):
    """One transaction with locks of its own: they are checked, and never conflict."""

    __slots__ = ("_locks", "_run", "_submitted")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._submitted = time.perf_counter()
        first, run.next_lock = run.next_lock, run.next_lock + run.lock_count
        self._locks = [PartitionLocalLock("bench", number * 2654435761) for number in range(first, run.next_lock)]

    def partition_id(self, partition_count: int) -> int:
        return 0

    def execute(self, builder: TransactionBuilder) -> bool:
        builder.set_data(self._run.payload)
        write_count = self._run.write_lock_count
        builder.set_write_locks(self._locks[:write_count])
        builder.set_read_locks(self._locks[write_count:])
        return True

    def on_lock_failure(self) -> None:
        self._run.retries += 1

    def on_application(self) -> None:
        self._run.applied(time.perf_counter() - self._submitted)

    def on_exception(self, error: Exception) -> None:
        if not self._run.done.done():
            self._run.done.set_exception(error)


def cpu_seconds(process_id: int) -> float:
    """User and system time that a process has used so far."""
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def resident_mib(process_id: int) -> float:
    """Memory of a process."""
    pages = int(Path(f"/proc/{process_id}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def measure(cluster: LocalCluster, options: argparse.Namespace) -> str:
    """Run the client against the cluster; the result in words."""
    config = load(cluster.layout.client_config_path, ClientConfig).model_copy(
        update={"max_concurrent_transactions": options.in_flight}
    )
    client = await WaltzClient.open(Callbacks(), config)
    try:
        await Run(client, WARM_UP, options, first_lock=0)()
        processes = {"client": os.getpid(), **cluster.processes()}
        before = {name: cpu_seconds(process_id) for name, process_id in processes.items()}
        memory_before = {name: resident_mib(process_id) for name, process_id in processes.items()}
        run = Run(client, options.transactions, options, first_lock=WARM_UP * (options.locks + options.read_locks))
        seconds = await run()
        used = {name: cpu_seconds(process_id) - before[name] for name, process_id in processes.items()}
        memory_after = {name: resident_mib(process_id) for name, process_id in processes.items()}
    finally:
        await client.close()
    latencies = sorted(run.latencies)
    cpu = ", ".join(f"{name} {used_s / options.transactions * 1e6:.1f}" for name, used_s in used.items())
    memory = ", ".join(f"{name} {memory_before[name]:.0f} to {size_mib:.0f}" for name, size_mib in memory_after.items())
    return (
        f"{options.transactions / seconds:,.0f} transactions/s, "
        f"p50 {latencies[len(latencies) // 2] * 1e3:.2f} ms, p99 {latencies[int(len(latencies) * 0.99)] * 1e3:.2f} ms, "
        f"{run.retries} lock failures\n  CPU per transaction in µs: {cpu}\n  memory in MiB: {memory}"
    )


def main() -> None:
    """Measure plaintext and TLS, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=128, help="bytes of data per transaction")
    parser.add_argument("--in-flight", type=int, default=256)
    parser.add_argument("--transactions", type=int, default=60_000)
    parser.add_argument("--locks", type=int, default=1, help="write locks per transaction")
    parser.add_argument("--read-locks", type=int, default=0, help="read locks per transaction")
    parser.add_argument("--directory", type=Path, help="where the storages write (default: a temporary directory)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--tls", action="store_true", help="TLS only")
    only.add_argument("--plaintext", action="store_true", help="plaintext only")
    options = parser.parse_args()
    for plaintext in (True, False):
        if (options.tls and plaintext) or (options.plaintext and not plaintext):
            continue
        with (
            tempfile.TemporaryDirectory(dir=options.directory) as directory,
            LocalCluster(Path(directory), servers=1, plaintext=plaintext) as cluster,
        ):
            result = uvloop.run(measure(cluster, options))
        print(
            f"{options.size} B, {options.locks} write locks, {options.read_locks} read locks, "
            f"{options.in_flight} in flight, {'plaintext' if plaintext else 'TLS'}: {result}",
            flush=True,
        )


if __name__ == "__main__":
    main()
