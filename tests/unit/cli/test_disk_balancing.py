"""``waltz storage rebalance-disks``: what it prints, and what it asks of a node."""

import argparse
import json
from collections.abc import Mapping
from typing import NamedTuple

import pytest

from waltz.cli import disk_balancing
from waltz.cli.main import parser
from waltz.common.errors import WaltzError

DISKS = {
    "directories": [
        {"directory": "/one", "free_bytes": 1_000_000, "partitions": {"0": 5_000_000_000, "3": 7_000_000}},
        {"directory": "/two", "free_bytes": 20_000_000_000, "partitions": {}},
    ],
    "moves": [{"partition": 0, "from": "/one", "to": "/two", "bytes": 5_000_000_000}],
}
PLAN = """/one: 1 MB free, 2 partitions
/two: 20000 MB free, 0 partitions
partition 0 (5000 MB): from /one to /two
"""


class Node(NamedTuple):
    """The admin client of a node."""

    document: Mapping[str, object]
    moved: list[tuple[int, str, int]]

    async def disks(self) -> str:
        return json.dumps(self.document)

    async def move_to_disk(self, partition_id: int, directory: str, rate_bytes_per_s: int) -> None:
        self.moved.append((partition_id, directory, rate_bytes_per_s))


def options(*arguments: str) -> argparse.Namespace:
    return parser().parse_args(["storage", "rebalance-disks", "-c", "unused.yml", "-s", "host:1", *arguments])


async def run(*arguments: str, document: Mapping[str, object] = DISKS) -> list[tuple[int, str, int]]:
    node = Node(document, [])
    await disk_balancing._carry_out(options(*arguments), node)  # type: ignore[arg-type]
    return node.moved


async def test_a_plan_moves_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("--plan") == []
    assert capsys.readouterr().out == PLAN


async def test_the_plan_is_carried_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("--apply", "--yes", "--rate", "3") == [(0, "/two", 3_000_000)]
    assert capsys.readouterr().out == f"{PLAN}partition 0 is in /two\n1 partition moved\n"
    assert await run("--apply", "--yes", "--json") == [(0, "/two", 20_000_000)]
    assert json.loads(capsys.readouterr().out) == {**DISKS, "applied": True}


async def test_one_partition_is_moved_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("--apply", "--yes", "-p", "3", "--to", "/two") == [(3, "/two", 20_000_000)]
    assert await run("--apply", "--yes", "-p", "3", "--to", "/one") == []
    assert "nothing to move" in capsys.readouterr().out
    with pytest.raises(WaltzError, match="partition 9 is not served by the node"):
        await run("--apply", "--yes", "-p", "9", "--to", "/one")


async def test_a_partition_needs_a_directory() -> None:
    with pytest.raises(WaltzError, match="-p and --to belong together"):
        await disk_balancing._rebalance(options("--plan", "-p", "3"), None)  # type: ignore[arg-type]


async def test_even_disks_need_no_confirmation(capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("--apply", document={**DISKS, "moves": []}) == []
    assert "nothing to move" in capsys.readouterr().out
