"""``waltz mirror``: how far mirrors are, whether they equal their sources, and their end."""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from waltz.cli.output import counted, show
from waltz.cli.session import Nouns, Session, client_of, cluster_command, noun, number, partition_ranges
from waltz.common.cluster.owners import read_owners
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import check_partition
from waltz.common.zk.store_admin import read_store_params, sync_cluster
from waltz.mirror.claims import Claim, Claims
from waltz.mirror.comparing import compare_range
from waltz.mirror.promotion import promote_partition
from waltz.mirror.source_log import ClientLog
from waltz.operations.write_sessions import SessionAnswer, ask_owners

if TYPE_CHECKING:
    from waltz.asynchronous import Client

MARK_TIMEOUT_S = 10.0


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "mirror")
    parser = cluster_command(
        verbs, "status", "print which partitions of the target are mirrors, and how far they are", _status, prints=True
    )
    _add_partitions(parser)
    _add_source(parser, required=False)
    help_text = "compare every transaction of the target with that of the source, and print the first difference"
    parser = cluster_command(verbs, "verify", help_text, _verify, prints=True)
    _add_partitions(parser)
    _add_source(parser, required=True)
    parser.add_argument("--from", type=number(0), default=0, dest="start", metavar="ID", help="first transaction")
    parser.add_argument("--before", type=number(0), dest="end", metavar="ID", help="first transaction that is left out")
    help_text = "end mirrors for good, running ones as well: applications write the partitions of the target"
    parser = cluster_command(verbs, "promote", help_text, _promote, prints=True)
    _add_partitions(parser)
    help_text = "take a promotion back: a mirror goes on, unless other transactions were appended since"
    parser = cluster_command(verbs, "resume", help_text, _resume)
    _add_partitions(parser)


def _add_partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all that are mirrors)"
    )


def _add_source(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument(
        "--source",
        type=Path,
        required=required,
        metavar="FILE",
        help="configuration file of a client of the source; -c names the target",
    )


async def _mirrors(options: argparse.Namespace, session: Session) -> dict[int, Claim]:
    """The chosen partitions, all of which are or were mirrors."""
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    wanted: Sequence[int] = range(count) if options.partition is None else options.partition
    for partition_id in wanted:
        check_partition(partition_id, count)
    await sync_cluster(session.zookeeper, session.root)
    claims = Claims(session.zookeeper, session.root)
    found = {partition_id: await claims.read(partition_id) for partition_id in wanted}
    if options.partition is not None:
        for partition_id, claim in found.items():
            if claim is None:
                raise WaltzError(f"partition {partition_id} is no mirror: no mirror has ever appended to it")
    mirrors = {partition_id: claim for partition_id, claim in found.items() if claim is not None}
    if not mirrors:
        raise WaltzError("no partition of the cluster is a mirror; -c names the target, not the source")
    return mirrors


async def _source_of(options: argparse.Namespace, claims: Sequence[Claim]) -> "Client":
    """An open client of the source. Raises ``WaltzError`` if the mirrors are those of another cluster."""
    from waltz.asynchronous import connect

    client = await connect(load(options.source, ClientConfig))
    try:
        key = await client.cluster_key()
        other = next((claim for claim in claims if claim.source != key), None)
        if other is not None:
            raise WaltzError(
                f"{options.source} names the cluster with the key {key}, and the source has {other.source}: give "
                "the source's file"
            )
    except BaseException:
        await client.close()
        raise
    return client


async def _status(options: argparse.Namespace, session: Session) -> None:
    mirrors = await _mirrors(options, session)
    owners = await read_owners(session.zookeeper, session.root)
    answers = await ask_owners({each: owners[each] for each in mirrors if each in owners}, session.tls)
    marks: dict[int, int | str] = {}
    if options.source is not None:
        async with await _source_of(options, [*mirrors.values()]) as source:
            marks = dict(zip(mirrors, await asyncio.gather(*(_mark(source, each) for each in mirrors)), strict=True))
    lines: list[str] = []
    document: list[Json] = []
    for partition_id, claim in mirrors.items():
        answer = answers.get(partition_id, "no server owns it")
        mark = marks.get(partition_id)
        lines.append(f"partition {partition_id}: {_described(claim, answer, mark)}")
        end = answer.last_transaction_id if isinstance(answer, SessionAnswer) else None
        document.append(
            {
                "partition": partition_id,
                "source": claim.source,
                "promoted": claim.promoted,
                "sessions": claim.sessions,
                "last_transaction": end,
                "source_mark": mark if isinstance(mark, int) else None,
                "lag": mark - end if isinstance(mark, int) and end is not None else None,
            }
        )
    show(options, document, lines)
    silent = [each for each in mirrors if isinstance(answers.get(each, ""), str)]
    if silent:
        raise WaltzError(f"the ends of {counted(len(silent), 'partition')} of the target are not known")


async def _mark(source: "Client", partition_id: int) -> int | str:
    try:
        return await source.high_water_mark(partition_id, timeout_s=MARK_TIMEOUT_S)
    except WaltzError as error:
        return str(error)


def _described(claim: Claim, answer: SessionAnswer | str, mark: int | str | None) -> str:
    kind = "promoted, before that the mirror of" if claim.promoted else "mirror of"
    text = f"{kind} cluster {claim.source}"
    if isinstance(answer, str):
        return f"{text}; its end is not known: {answer}"
    text += f", up to transaction {answer.last_transaction_id}"
    if isinstance(mark, str):
        return f"{text}; that of the source is not known: {mark}"
    return text if mark is None else f"{text} of {mark} in the source"


async def _verify(options: argparse.Namespace, session: Session) -> None:
    mirrors = await _mirrors(options, session)
    lines: list[str] = []
    document: list[Json] = []
    differing = 0
    async with await _source_of(options, [*mirrors.values()]) as source, client_of(session) as target:
        for partition_id in mirrors:
            source_mark = await source.high_water_mark(partition_id, confirmed=options.start == 0)
            target_mark = await target.high_water_mark(partition_id)
            until = min(source_mark, target_mark, *([] if options.end is None else [options.end - 1]))
            found = await compare_range(
                ClientLog(source, partition_id), ClientLog(target, partition_id), options.start, until
            )
            problem = None if found is None else str(found)
            if problem is None and target_mark > source_mark and options.end is None:
                problem = f"transaction {source_mark + 1} is in the target only"
            differing += problem is not None
            compared = max(until - options.start + 1, 0)
            state = f"equal, {counted(compared, 'transaction')}" if problem is None else problem
            lines.append(f"partition {partition_id}: {state}")
            document.append({"partition": partition_id, "transactions": compared, "problem": problem})
    show(options, document, lines)
    if differing:
        raise WaltzError(f"{counted(differing, 'partition')} of the target cannot be said to equal the source")


async def _promote(options: argparse.Namespace, session: Session) -> None:
    mirrors = await _mirrors(options, session)
    lines: list[str] = []
    document: list[Json] = []
    failures: list[str] = []
    for partition_id in mirrors:
        try:
            last_id = await promote_partition(session.cluster, partition_id)
        except WaltzError as error:
            failures.append(str(error))
            lines.append(f"partition {partition_id}: {error}")
            document.append({"partition": partition_id, "last_transaction": None, "problem": str(error)})
        else:
            lines.append(f"partition {partition_id} is promoted behind transaction {last_id}")
            document.append({"partition": partition_id, "last_transaction": last_id, "problem": None})
    show(options, document, lines)
    if failures:
        raise WaltzError(f"{counted(len(failures), 'partition')} may still be written by a mirror: promote again")


async def _resume(options: argparse.Namespace, session: Session) -> None:
    if options.partition is None:
        raise WaltzError("resume needs -p: the partitions whose promotion was a mistake")
    await _mirrors(options, session)
    claims = Claims(session.zookeeper, session.root)
    for partition_id in options.partition:
        await claims.resume(partition_id)
        print(f"partition {partition_id} is a mirror again: start waltz-mirror anew")
