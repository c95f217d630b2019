"""The bank: several processes, each with a database of its own, move money between accounts through the log.

Every transfer takes a write lock on both of its accounts, so no process ever works on a balance that has changed
meanwhile. At the end all databases must agree, no money may have come or gone, and Spark must find the same in the log.
Then a pipeline of two streaming queries keeps balances and hourly summaries in Parquet, and is restarted half-way.
"""

import contextlib
import csv
import json
import os
import queue
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, NamedTuple, NoReturn

from tqdm import tqdm

from waltz.common.errors import WaltzError
from waltz.common.version import with_extra
from waltz.demo import analysis, pipeline, teller
from waltz.demo.ledger import digest
from waltz.demo.transfers import Rejected, Transfers
from waltz.local.cluster import LocalCluster
from waltz.local.processes import Child, Children

SHOWN_REJECTS = 20
SETTLE_TIMEOUT_S = 180.0


class DemoOptions(NamedTuple):
    """Options of the demo."""

    transactions: int
    input: Path | None
    opening_cents: int
    accounts: int
    tellers: int
    in_flight: int
    seed: int
    plaintext: bool
    directory: Path | None
    rejects: Path | None
    pipeline: bool


class Settled(NamedTuple):
    """Result of one teller."""

    high_water_mark: int
    committed: int
    accounts: int
    total_cents: int
    digest: str


class TellersOutcome(NamedTuple):
    """Result of all tellers together."""

    transfers: int
    refused: int
    lock_conflicts: int
    seconds: float
    settled: list[Settled]


class LogFindings(NamedTuple):
    """Result of Spark's queries of the log."""

    balances: dict[str, int]
    pipeline: pipeline.PipelineOutcome | None


Message = dict[str, object]


def run(options: DemoOptions) -> int:
    """Run the bank and print its report; 0 if everything agrees, else 1."""
    transfers = options.transactions if options.input is None else _inspect(options.input, options.rejects)
    if transfers == 0:
        raise WaltzError(f"{options.input} has no usable transfer")
    with _directory(options.directory) as directory:
        _tell(f"starting ZooKeeper, three storages and two servers (data and logs in {directory}) ...")
        with LocalCluster(directory, plaintext=options.plaintext) as cluster:
            outcome = _tellers_at_work(cluster, options, transfers)
            found = _in_spark(cluster, options, outcome)
    return _report(options, outcome, found)


@contextlib.contextmanager
def _directory(wanted: Path | None) -> Iterator[Path]:
    if wanted is not None:
        if wanted.exists() and any(wanted.iterdir()):
            raise WaltzError(f"{wanted} is not empty; the demo starts with an empty log, choose another directory")
        yield wanted
        return
    directory = Path(tempfile.mkdtemp(prefix="waltz-demo-"))
    try:
        yield directory
    except WaltzError:
        print(f"the logs are kept in {directory}")
        raise
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise
    else:
        shutil.rmtree(directory, ignore_errors=True)


def _inspect(path: Path, rejects: Path | None) -> int:
    """Read the input once and report its defects. Returns the number of usable transfers."""
    shown: list[Rejected] = []
    with contextlib.ExitStack() as stack:
        keep: Callable[[Rejected], object] = shown.append
        if rejects is not None:
            writer = csv.writer(stack.enter_context(rejects.open("w", newline="", encoding="utf-8")))
            writer.writerow(Rejected._fields)
            keep = writer.writerow
        rejected = 0

        def reject(row: Rejected) -> None:
            nonlocal rejected
            rejected += 1
            if rejects is not None or rejected <= SHOWN_REJECTS:
                keep(row)

        accepted = sum(1 for _ in Transfers(path, reject))
    print(f"{path}: {accepted:,} transfers, {rejected:,} rows rejected")
    for row in shown:
        print(f"  line {row.line}: {row.reason}")
    if rejects is not None:
        print(f"  every rejected row: {rejects}")
    elif rejected > len(shown):
        print(f"  ... and {rejected - len(shown):,} more; write them all down with --rejects FILE.csv")
    return accepted


def _tellers_at_work(cluster: LocalCluster, options: DemoOptions, transfers: int) -> TellersOutcome:
    messages: queue.Queue[tuple[int, Message]] = queue.Queue()
    with Children() as children:
        tellers = [_start_teller(children, cluster, options, index, messages) for index in range(options.tellers)]
        bar = tqdm(total=transfers, unit=" transfers", smoothing=0.1, mininterval=0.5)
        started = time.monotonic()
        with bar:
            finished = _until_finished(tellers, messages, bar)
        seconds = time.monotonic() - started
        settled = _settle(tellers, messages)
    return TellersOutcome(
        transfers=transfers,
        refused=sum(_number(message, "refused") for message in finished),
        lock_conflicts=sum(_number(message, "lock_conflicts") for message in finished),
        seconds=seconds,
        settled=settled,
    )


def _start_teller(
    children: Children,
    cluster: LocalCluster,
    options: DemoOptions,
    index: int,
    messages: "queue.Queue[tuple[int, Message]]",
) -> Child:
    directory = cluster.layout.directory
    command = teller.command(
        teller.TellerOptions(
            config=cluster.layout.client_config_path,
            database=directory / f"teller-{index + 1}.db",
            number=index,
            tellers=options.tellers,
            in_flight=options.in_flight,
            opening_cents=options.opening_cents,
            input=options.input,
            transactions=options.transactions,
            accounts=options.accounts,
            seed=options.seed,
        )
    )
    child = children.start(f"teller-{index + 1}", command, directory / f"teller-{index + 1}.log", piped=True)
    threading.Thread(target=_read, args=(index, child.pipes[1], messages), daemon=True).start()
    return child


def _read(index: int, output: IO[bytes], messages: "queue.Queue[tuple[int, Message]]") -> None:
    """Pass on the lines of a teller, and its end."""
    with contextlib.suppress(ValueError, OSError):
        for line in output:
            messages.put((index, json.loads(line)))
    messages.put((index, {"ended": True}))


def _until_finished(
    tellers: list[Child], messages: "queue.Queue[tuple[int, Message]]", bar: "tqdm[NoReturn]"
) -> list[Message]:
    """Show the progress until every teller has submitted its share."""
    latest: list[Message] = [{} for _ in tellers]
    while not all("finished" in message for message in latest):
        index, message = messages.get()
        _check(tellers[index], message)
        if "finished" not in latest[index]:
            latest[index] = message
        bar.update(sum(_number(message, "done") for message in latest) - bar.n)
        conflicts = sum(_number(message, "lock_conflicts") for message in latest)
        bar.set_postfix_str(f"{conflicts} lock conflicts", refresh=False)
    return latest


def _settle(tellers: list[Child], messages: "queue.Queue[tuple[int, Message]]") -> list[Settled]:
    """Let every teller apply the whole log, and return the result of each."""
    for child in tellers:
        pipe = child.pipes[0]
        pipe.write(b"settle\n")
        pipe.flush()
    found: dict[int, Settled] = {}
    deadline = time.monotonic() + SETTLE_TIMEOUT_S
    while len(found) < len(tellers):
        try:
            index, message = messages.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise WaltzError(f"the tellers did not apply the whole log within {SETTLE_TIMEOUT_S:g} s") from None
        if index in found:
            continue
        _check(tellers[index], message)
        if "settled" in message:
            found[index] = Settled(*(message[name] for name in Settled._fields))  # type: ignore[arg-type] # our own JSON
    return [found[index] for index in range(len(tellers))]


def _check(child: Child, message: Message) -> None:
    if "failed" in message:
        raise WaltzError(f"{child.name} failed: {message['failed']}")
    if "ended" in message:
        raise WaltzError(f"{child.name} ended too early; its log ends:\n{child.log_tail()}")


def _number(message: Message, name: str) -> int:
    value = message.get(name, 0)
    assert isinstance(value, int)
    return value


def _tell(line: str) -> None:
    """Print the next step of the demo."""
    print(line, flush=True)


def _in_spark(cluster: LocalCluster, options: DemoOptions, outcome: TellersOutcome) -> LogFindings:
    _tell("Spark starts: a Java process, which takes longest the first time ...")
    spark = analysis.spark_session()
    try:
        _tell("Spark reads the log, and makes balances of it ...")
        transfers = analysis.transfers(spark.read, cluster).load()
        rows = analysis.balances(transfers, options.opening_cents).collect()
        balances = {row["account"]: row["cents"] for row in rows}
        in_log = outcome.settled[0].high_water_mark + 1
        if not options.pipeline or not in_log:
            return LogFindings(balances, None)
        directory = cluster.layout.directory / "pipeline"
        streams = pipeline.Pipeline(spark, cluster, directory, in_log, options.opening_cents, _tell)
        return LogFindings(balances, streams.run())
    finally:
        spark.stop()


def _report(options: DemoOptions, outcome: TellersOutcome, found: LogFindings) -> int:
    first = outcome.settled[0]
    in_log = first.high_water_mark + 1
    committed = sum(settled.committed for settled in outcome.settled)
    balances_equal = all(settled[2:] == first[2:] for settled in outcome.settled)
    money_conserved = all(s.total_cents == s.accounts * options.opening_cents for s in outcome.settled)
    spark_agrees = digest(found.balances) == first.digest
    complete = in_log == committed == outcome.transfers - outcome.refused
    verdicts = {
        "every transfer in the log once": complete,
        "balances equal": balances_equal,
        "money conserved": money_conserved,
        "Spark agrees": spark_agrees,
    }
    if found.pipeline is not None:
        verdicts["streams agree after a restart"] = found.pipeline.exact
    rows = {
        "transfers": f"{outcome.transfers:,}",
        "committed": f"{committed:,}",
        "refused (overdraft)": f"{outcome.refused:,}",
        "accounts": f"{first.accounts:,}",
        "throughput": f"{outcome.transfers / outcome.seconds:,.0f} transfers/s ({outcome.seconds:.1f} s)",
        "retries after lock conflicts": f"{outcome.lock_conflicts:,}",
        **{name: "yes" if holds else "NO" for name, holds in verdicts.items()},
    }
    print(os.linesep.join(f"  {name:<32}{value}" for name, value in rows.items()))
    if found.pipeline is not None:
        print(_where(options, found.pipeline))
    return 0 if all(verdicts.values()) else 1


def _where(options: DemoOptions, outcome: pipeline.PipelineOutcome) -> str:
    """Print the place of the pipeline's results."""
    if outcome.plot is None:
        return f"no plot of the streams: matplotlib is not installed; {with_extra('demo')}"
    if options.directory is None:
        return "--directory DIR keeps the streams' Parquet files, and a plot of throughput and lag, in DIR/pipeline"
    return f"throughput and lag of the streams: {outcome.plot}"
