"""``waltz status`` and ``waltz top``: the whole cluster on one screen, once and live."""

import argparse
import asyncio
import importlib.util
import json
import sys
from collections.abc import Mapping

from waltz.cli.client import check_partition_ids
from waltz.cli.output import counted, show, table, terminal_width
from waltz.cli.session import Nouns, Session, cluster_command, number, partition_ranges
from waltz.common.cluster.owners import Owner
from waltz.common.errors import WaltzError
from waltz.common.version import with_extra
from waltz.common.zk.store_admin import read_store_params
from waltz.operations.survey.cluster_state import ClusterState, SurveyedPartition, SurveyedReplica, read_state
from waltz.operations.write_sessions import SessionAnswer, ask_owners

UNKNOWN = "-"


def register(nouns: Nouns) -> None:
    """Add the commands."""
    help_text = "print servers, storages and partitions: owners, sessions, replicas and how far they lag, rates, health"
    parser = cluster_command(nouns, "status", help_text, _status, prints=True)
    _options(parser)
    parser.add_argument(
        "--interval",
        type=number(minimum=0),
        default=1,
        metavar="SECONDS",
        help="look twice, so far apart, to tell rates; 0: once, without rates (default: 1)",
    )
    parser.add_argument("--exit-code", action="store_true", help="end with 1 when a partition is not well")
    help_text = "the same again and again, until Ctrl-C; --json prints a line each time"
    parser = cluster_command(nouns, "top", help_text, _top, prints=True)
    _options(parser)
    parser.add_argument(
        "--interval", type=number(minimum=1), default=2, metavar="SECONDS", help="between two looks (default: 2)"
    )


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")
    parser.add_argument(
        "-t",
        "--timeout",
        type=number(minimum=1),
        default=5,
        metavar="SECONDS",
        help="for each connection and each answer (default: 5)",
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
    if options.exit_code and state.unwell:
        raise WaltzError(f"{state.unwell} of {len(state.partitions)} partitions are not well")


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
            except WaltzError as error:  # an outage is what somebody watches for
                lines = [f"Error: {error}"]
            text = Text("\n".join(lines), no_wrap=True, overflow="ellipsis")
            text.highlight_words(["behind", "offline", "silent", "no answer", "Error"], "bold red")
            text.highlight_regex(r"\b[A-Z]+_[A-Z_]+\b", "red")
            live.update(text, refresh=True)
            await asyncio.sleep(options.interval)


def lines_of(state: ClusterState, width: int | None, height: int | None = None) -> list[str]:
    """All of it within ``width``; where ``height`` is too little, partitions that are well are left out first."""
    count = len(state.partitions)
    health = f"{state.unwell} of them not well" if state.unwell else "all well"
    known = [partition.rate_per_s for partition in state.partitions if partition.rate_per_s is not None]
    rate = f", {sum(known):.0f} transactions/s" if known else ""
    lines = [f"cluster {state.name} at {state.root}: {counted(count, 'partition')}, {health}{rate}", ""]
    servers = [
        (
            each.server_id,
            each.endpoint,
            "no answer" if each.version is None else each.version,
            each.partitions,
            ",".join(map(str, each.preferred)) or UNKNOWN,
        )
        for each in state.servers
    ]
    lines += table(("SERVER", "ENDPOINT", "PROTOCOL", "PARTITIONS", "PREFERRED"), servers, width)
    storages = [
        (
            each.storage,
            f"{each.online} of {counted(each.assigned, 'partition')} online" if each.answers else "no answer",
        )
        for each in state.storages
    ]
    lines += ["", *table(("STORAGE", "STATE"), storages, width), ""]
    partitions = sorted(state.partitions, key=lambda each: (not each.problems, each.partition_id))
    left_out = 0
    if height is not None and len(lines) + 1 + len(partitions) > height:
        shown = max(1, height - len(lines) - 2)
        left_out = len(partitions) - shown
        partitions = partitions[:shown]
    names = ("PARTITION", "OWNER", "GENERATION", "SESSION", "WRITE SESSION", "LAST ID", "PER S", "REPLICAS", "HEALTH")
    lines += table(names, [_row(each) for each in partitions], width)
    if left_out:
        lines.append(f"and {left_out} more")
    return lines


def _row(partition: SurveyedPartition) -> tuple[object, ...]:
    known = [partition.owner, partition.generation, partition.store_session, partition.write_session]
    return (
        partition.partition_id,
        *(UNKNOWN if each is None else each for each in (*known, partition.high_water_mark)),
        UNKNOWN if partition.rate_per_s is None else f"{partition.rate_per_s:.0f}",
        _replicas(partition.replicas),
        " ".join(partition.problems) or "ok",
    )


def _replicas(replicas: tuple[SurveyedReplica, ...]) -> str:
    """Replicas that are not current are named, the others counted."""
    well = [each for each in replicas if each.state == "current" and each.lag in (0, None)]
    others = [
        f"{each.storage} {each.state}" + (f" -{each.lag}" if each.lag else "") for each in replicas if each not in well
    ]
    return ", ".join([f"{len(well)} of {len(replicas)} current", *others])
