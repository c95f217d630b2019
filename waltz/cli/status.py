"""``waltz status`` and ``waltz top``: the whole cluster on one screen, once and live."""

import argparse
import asyncio
import importlib.util
import json
import sys
from collections.abc import Mapping, Set

from waltz.cli.nouns import NOUNS
from waltz.cli.output import counted, cut, show, table, terminal_width
from waltz.cli.session import Nouns, Session, check_partition_ids, cluster_command, number, partition_ranges
from waltz.common.cluster.owners import Owner
from waltz.common.errors import WaltzError
from waltz.common.partition_ids import id_ranges
from waltz.common.replica_states import Remedy, ReplicaStatus
from waltz.common.version import with_extra
from waltz.common.zk.store_admin import read_store_params
from waltz.operations.survey.cluster_state import ClusterState, SurveyedPartition, SurveyedStorage, read_state
from waltz.operations.survey.problems import (
    CRITICAL,
    WARNING,
    WORDS,
    failed_checks,
    find_problems,
    silent_storages,
)
from waltz.operations.survey.replica_judgement import SurveyedReplica
from waltz.operations.write_sessions import SessionAnswer, ask_owners

UNKNOWN = "-"


def register(nouns: Nouns) -> None:
    """Add the commands."""
    parser = cluster_command(nouns, "status", NOUNS["status"].help_text, _status, prints=True)
    _options(parser)
    parser.add_argument(
        "--interval",
        type=number(minimum=0),
        default=1,
        metavar="SECONDS",
        help="time between two readings, for rates; 0: read once, without rates (default: 1)",
    )
    parser.add_argument("--exit-code", action="store_true", help="end with 1 if a partition or a node is not well")
    parser = cluster_command(nouns, "top", NOUNS["top"].help_text, _top, prints=True)
    _options(parser)
    parser.add_argument(
        "--interval",
        type=number(minimum=1),
        default=2,
        metavar="SECONDS",
        help="time between two readings (default: 2)",
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=5,
        metavar="SECONDS",
        help="time limit of each connection and each answer (default: 5)",
    )


async def _wanted(options: argparse.Namespace, session: Session) -> list[int]:
    if options.partition is None:
        return list(range((await read_store_params(session.zookeeper, session.root)).partition_count))
    await check_partition_ids(session, *options.partition)
    return list(options.partition)


async def look(
    session: Session, partition_ids: list[int], timeout_s: float, before: ClusterState | None = None
) -> ClusterState:
    """The state of the cluster with its write sessions; rates are those since ``before``."""

    async def ask(owners: Mapping[int, Owner]) -> Mapping[int, int]:
        answers = await ask_owners(owners, session.tls, timeout_s)
        return {
            each: answer.number
            for each, answer in answers.items()
            if isinstance(answer, SessionAnswer) and answer.number is not None
        }

    return await read_state(
        session.cluster,
        partition_ids,
        timeout_s=timeout_s,
        before=before,
        ask_write_sessions=ask,
    )


async def _status(options: argparse.Namespace, session: Session) -> None:
    wanted = await _wanted(options, session)
    state = await look(session, wanted, options.timeout)
    if options.interval:
        await asyncio.sleep(options.interval)
        state = await look(session, wanted, options.timeout, state)
    show(options, state.document(), lines_of(state, terminal_width()))
    if options.exit_code and (state.unwell or state.unwell_nodes):
        told = [f"{state.unwell} of {counted(len(state.partitions), 'partition')} not well"] if state.unwell else []
        told += [f"{counted(state.unwell_nodes, 'node')} not well"] if state.unwell_nodes else []
        raise WaltzError("; ".join(told))


async def _top(options: argparse.Namespace, session: Session) -> None:
    wanted = await _wanted(options, session)
    if options.json:
        state = None
        while True:
            state = await look(session, wanted, options.timeout, state)
            print(json.dumps(state.document()), flush=True)
            await asyncio.sleep(options.interval)
    if importlib.util.find_spec("rich") is None:
        raise WaltzError(f"waltz top needs rich: {with_extra('tools')}; waltz status prints the same once")
    if not sys.stdout.isatty():
        raise WaltzError("waltz top needs a terminal; waltz status prints the same once, --json a line each time")
    await _draw(options, session, wanted)


async def _draw(options: argparse.Namespace, session: Session, wanted: list[int]) -> None:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console()
    state = None
    with Live(Text("asking ..."), console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                state = await look(session, wanted, options.timeout, state)
                lines = lines_of(state, console.width, console.height - 1)
            except WaltzError as error:  # show an outage instead of ending: operators watch for outages
                lines = [f"Error: {error}"]
            text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
            bad = [status.value for status in ReplicaStatus if status is not ReplicaStatus.CURRENT]
            text.highlight_words([*bad, "no answer", "not well", "Error", CRITICAL, WARNING], "bold red")
            text.highlight_words([words.short for words in WORDS.values()], "red")
            live.update(text, refresh=True)
            await asyncio.sleep(options.interval)


def lines_of(state: ClusterState, width: int | None, height: int | None = None) -> list[str]:
    """The state as lines of ``width``. If ``height`` is too small, healthy partitions are left out first."""
    known = [partition.rate_per_s for partition in state.partitions if partition.rate_per_s is not None]
    rate = f", {sum(known):.0f} transactions/s" if known else ""
    head = f"cluster {state.name} at {state.root}: {_health(state)}{rate}"
    endpoints = {each.server_id: each.endpoint for each in state.servers}
    servers = [
        (
            each.endpoint,
            each.server_id,
            "no answer" if each.version is None else each.version,
            each.partitions,
            id_ranges(each.preferred, ",") or UNKNOWN,
        )
        for each in state.servers
    ]
    nodes = table(("SERVER", "ID", "PROTOCOL", "PARTITIONS", "PREFERRED"), servers, width)
    nodes += ["", *table(("STORAGE", "STATE"), [(each.storage, _storage(each)) for each in state.storages], width), ""]
    silent = silent_storages(state)
    partitions = sorted(state.partitions, key=lambda each: (_rank(each), each.partition_id))
    rows = [_row(each, endpoints, silent) for each in partitions]
    problems = _problem_lines(state)
    left_out = 0
    if height is not None:
        room = height - len(nodes) - 4  # the head, an empty line, names of columns, the number left out
        problems = problems[: max(0, room - min(len(rows), 5)) // 2 * 2]  # two lines each
        if (shown := max(1, room + 1 - len(problems))) < len(rows):
            shown = max(1, shown - 1)
            left_out, rows = len(rows) - shown, rows[:shown]
    lines = [head, *problems, "", *nodes, *_partition_table(rows, width)]
    if left_out:
        lines.append(f"and {left_out} more")
    return lines if width is None else [cut(line, width) for line in lines]


def _health(state: ClusterState) -> str:
    """The number of partitions and nodes that are not well, as text."""
    count, unwell, nodes = len(state.partitions), state.unwell, state.unwell_nodes
    partitions = f"{unwell} of them not well" if unwell else "all well"
    beside = f"; {counted(nodes, 'node')} not well" if nodes else ""
    return f"{counted(count, 'partition')}, {partitions}{beside}"


def _problem_lines(state: ClusterState) -> list[str]:
    """The problems, each with a line for its remedy."""
    lines = []
    for problem in find_problems(state):
        lines.append(f"{problem.severity}: {problem.title}")
        lines.append(f"  do: {Remedy(problem.do, problem.section)}")
    return lines


def _storage(storage: SurveyedStorage) -> str:
    if not storage.answers:
        return "no answer"
    online = f"{storage.online} of {counted(storage.assigned, 'partition')} online"
    told = ["health not told"] if storage.ailments is None else [each.text for each in storage.ailments]
    return "; ".join([online, *told])


COLUMNS = (
    *("PARTITION", "OWNER", "GENERATION", "SESSION", "WRITE SESSION", "LAST ID", "PER S"),
    *("CLIENT LAG", "REPLICAS", "HEALTH"),
)
SPARED = ("GENERATION", "SESSION", "WRITE SESSION", "CLIENT LAG")
"""The columns that are left out first if the terminal is too narrow."""


def _partition_table(rows: list[tuple[object, ...]], width: int | None) -> list[str]:
    """The rows as a table. Spare columns are left out until the others fit without cuts."""
    names: tuple[str, ...] = COLUMNS
    for left_out in ("", *SPARED):
        if left_out:
            place = names.index(left_out)
            names = names[:place] + names[place + 1 :]
            rows = [row[:place] + row[place + 1 :] for row in rows]
        lines = table(names, rows, None)
        if width is None or max(map(len, lines)) <= width:
            return lines
    return table(names, rows, width)


def _rank(partition: SurveyedPartition) -> int:
    """The rank for sorting: partitions with problems, then others that are not well, then healthy ones."""
    if not partition.problems:
        return 2
    return 0 if any(WORDS[name].severity == CRITICAL for name in partition.problems) else 1


def _row(partition: SurveyedPartition, endpoints: Mapping[int, str], silent: Set[str]) -> tuple[object, ...]:
    owner = partition.owner
    numbers = [partition.generation, partition.store_session, partition.write_session, partition.high_water_mark]
    return (
        partition.partition_id,
        UNKNOWN if owner is None else endpoints.get(owner, f"server {owner} is gone"),
        *(UNKNOWN if each is None else each for each in numbers),
        UNKNOWN if partition.rate_per_s is None else f"{partition.rate_per_s:.0f}",
        UNKNOWN if partition.feed_lag is None else _lag(partition.feed_lag, partition.feed_lag_s) or "0",
        _replicas(partition.replicas),
        ", ".join(WORDS[name].short for name in failed_checks(partition, silent)) or "ok",
    )


def _replicas(replicas: tuple[SurveyedReplica, ...]) -> str:
    """The number of current replicas, and the names of the others."""
    others = [each for each in replicas if each.state != ReplicaStatus.CURRENT.value]
    named = [" ".join(filter(None, (each.storage, each.state, _lag(each.lag, each.lag_s)))) for each in others]
    return ", ".join([f"{len(replicas) - len(others)} of {len(replicas)} current", *named])


def _lag(transactions: int | None, age_s: float | None) -> str:
    """A lag in transactions and seconds, as far as they are known and not 0."""
    parts = [f"-{transactions}"] if transactions else []
    return " ".join([*parts, f"({age_s:.3g} s)"] if age_s else parts)
