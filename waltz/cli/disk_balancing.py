"""``waltz storage rebalance-disks``: prints the plan of a storage node, asks, and moves partitions between disks."""

import argparse
import asyncio
import json
import sys

from pydantic import BaseModel, Field

from waltz.cli.output import confirm, counted, show, tell, yes_option
from waltz.cli.session import Nouns, Session, cluster_command, endpoint, failed, number
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.operations.storages import connection
from waltz.storage.remote.admin_client import StorageAdminClient

_MEGABYTE = 1_000_000


class _Directory(BaseModel):
    directory: str
    free_bytes: int
    partitions: dict[int, int]


class _Move(BaseModel):
    partition: int
    source: str = Field(alias="from")
    to: str
    size_bytes: int = Field(alias="bytes")


class _Disks(BaseModel):
    directories: list[_Directory]
    moves: list[_Move]


def register(verbs: Nouns) -> None:
    """Add the verb."""
    help_text = "move partitions between the disks of one storage node, while servers use them"
    parser = cluster_command(verbs, "rebalance-disks", help_text, _rebalance, prints=True)
    parser.add_argument("-s", "--storage", type=endpoint, required=True, metavar="HOST:ADMIN_PORT")
    parser.add_argument("-p", "--partition", type=number(minimum=0), help="move this partition (with --to)")
    parser.add_argument("--to", metavar="DIRECTORY", help="the directory for the partition of -p")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--plan", action="store_true", help="only print the plan")
    what.add_argument("--apply", action="store_true", help="carry out the plan, one partition after the other")
    parser.add_argument(
        "--rate", type=number(minimum=1), default=20, metavar="MB/S", help="limit of the copying (default: 20)"
    )
    yes_option(parser)


async def _rebalance(options: argparse.Namespace, session: Session) -> None:
    if (options.partition is None) != (options.to is None):
        raise WaltzError("-p and --to belong together: the partition, and the directory for it")
    try:
        async with connection(StorageAdminClient, session.cluster, options.storage) as client:
            await _carry_out(options, client)
    except WaltzError as error:
        raise failed(f"The disks of {options.storage} were not rebalanced", error) from error


async def _carry_out(options: argparse.Namespace, client: StorageAdminClient) -> None:
    disks = _Disks.model_validate_json(await client.disks())
    moves = disks.moves if options.partition is None else _wanted(disks, options.partition, options.to)
    lines = [
        f"{disk.directory}: {disk.free_bytes // _MEGABYTE} MB free, {counted(len(disk.partitions), 'partition')}"
        for disk in disks.directories
    ]
    lines += [
        f"partition {move.partition} ({move.size_bytes // _MEGABYTE} MB): from {move.source} to {move.to}"
        for move in moves
    ]
    if not moves:
        lines.append("nothing to move")
    if options.plan or not moves:
        show(options, _document(disks, moves, applied=not moves), lines)
        return
    for line in lines:
        tell(options, line)
    confirm(options, "do this?", needs_terminal=True)
    for move in moves:
        try:
            await client.move_to_disk(move.partition, move.to, options.rate * _MEGABYTE)
        except asyncio.CancelledError:
            text = f"the node goes on with partition {move.partition}; no other one is moved"
            print(text, file=sys.stderr)
            raise
        tell(options, f"partition {move.partition} is in {move.to}")
    show(options, _document(disks, moves, applied=True), [f"{counted(len(moves), 'partition')} moved"])


def _wanted(disks: _Disks, partition_id: int, to: str) -> list[_Move]:
    for disk in disks.directories:
        if partition_id in disk.partitions and disk.directory != to:
            size_bytes = disk.partitions[partition_id]
            move = {"partition": partition_id, "from": disk.directory, "to": to, "bytes": size_bytes}
            return [_Move.model_validate(move)]
    if not any(partition_id in disk.partitions for disk in disks.directories):
        raise WaltzError(f"partition {partition_id} is not served by the node")
    return []


def _document(disks: _Disks, moves: list[_Move], *, applied: bool) -> dict[str, Json]:
    directories: list[Json] = [json.loads(disk.model_dump_json()) for disk in disks.directories]
    planned: list[Json] = [json.loads(move.model_dump_json(by_alias=True)) for move in moves]
    return {"applied": applied, "directories": directories, "moves": planned}
