"""Named cursors: moved by one consumer at a time, also when answers get lost."""

from collections.abc import AsyncIterator

import pytest

import waltz
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.client.mock.nodes import MockNodes
from waltz.common.zk.client import ANY_VERSION, ConnectionLossError, Stat
from waltz.table.errors import CursorConflict, TableError
from waltz.table.face.cursors import NamedCursor

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.filterwarnings("ignore:NamedCursor is deprecated:DeprecationWarning"),
]

PATH = "/mock/ext/cursor/mails/1"


class LosingNodes(MockNodes):
    """Does what it is told, and loses the answers on command."""

    losing = False

    async def create(self, path: str, data: bytes | None, *, make_path: bool = False) -> str:
        created = await super().create(path, data, make_path=make_path)
        self._lose()
        return created

    async def set(self, path: str, data: bytes | None, version: int = ANY_VERSION) -> Stat:
        stat = await super().set(path, data, version)
        self._lose()
        return stat

    def _lose(self) -> None:
        if self.losing:
            raise ConnectionLossError("no answer")


@pytest.fixture
def nodes() -> LosingNodes:
    return LosingNodes()


@pytest.fixture
async def client(nodes: LosingNodes) -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver([MockServerPartition(number, nodes) for number in range(2)])) as client:
        yield client


async def test_a_cursor_goes_on_where_the_group_was(client: waltz.Client) -> None:
    cursor = NamedCursor(client, "mails", 1)
    assert await cursor.read() == -1
    for position in (0, 5, 5, 9):
        await cursor.advance(position)
    with pytest.raises(ValueError, match="at 9 already, and does not go back to 8"):
        await cursor.advance(8)
    assert await NamedCursor(client, "mails", 1).read() == 9
    assert await NamedCursor(client, "letters", 1).read() == -1
    assert await NamedCursor(client, "mails", 0).read() == -1


@pytest.mark.parametrize("position", [-1, 3])
async def test_one_of_two_consumers_is_told(client: waltz.Client, position: int) -> None:
    one, two = NamedCursor(client, "mails", 1), NamedCursor(client, "mails", 1)
    if position >= 0:
        await one.advance(position)
    assert [await one.read(), await two.read()] == [position, position]
    await one.advance(7)
    with pytest.raises(CursorConflict, match="of partition 1 were moved by another consumer; read it again"):
        await two.advance(8)
    assert await two.read() == 7
    await two.advance(8)
    with pytest.raises(CursorConflict):
        await one.advance(9)


async def test_a_write_whose_answer_got_lost_is_made_again(client: waltz.Client, nodes: LosingNodes) -> None:
    cursor = NamedCursor(client, "mails", 1)
    for position in (1, 2):
        nodes.losing = True
        with pytest.raises(ConnectionLossError):
            await cursor.advance(position)
        nodes.losing = False
        await cursor.advance(position)
        assert await NamedCursor(client, "mails", 1).read() == position


@pytest.mark.parametrize("data", [None, b"", b"[]", b"{}", b'{"transactionId": "1", "holder": ""}', b"\xff"])
async def test_a_node_of_somebody_else_is_left_alone(
    client: waltz.Client, nodes: LosingNodes, data: bytes | None
) -> None:
    await nodes.create(PATH, data)
    cursor = NamedCursor(client, "mails", 1)
    with pytest.raises(TableError, match="does not hold a position"):
        await cursor.read()
    with pytest.raises(TableError, match="does not hold a position"):
        await cursor.advance(1)
    assert (await nodes.get(PATH))[0] == data


async def test_a_write_whose_answer_got_lost_is_moved_on_from(client: waltz.Client, nodes: LosingNodes) -> None:
    cursor = NamedCursor(client, "mails", 1)
    nodes.losing = True
    with pytest.raises(ConnectionLossError):
        await cursor.advance(3)
    nodes.losing = False
    await cursor.advance(4)
    assert cursor.exists
    assert await cursor.read() == 4


@pytest.mark.parametrize("group", ["", ".", "..", "a/b", "a\n"])
async def test_names_that_no_node_can_have(client: waltz.Client, group: str) -> None:
    with pytest.raises(ValueError, match="name of a group"):
        NamedCursor(client, group, 0)


async def test_there_is_no_cursor_without_a_partition(client: waltz.Client) -> None:
    with pytest.raises(ValueError, match="no partition 2; the cluster has 2"):
        NamedCursor(client, "mails", 2)


async def test_it_says_what_to_use(client: waltz.Client) -> None:
    with pytest.warns(DeprecationWarning, match=r"use waltz\.ZooKeeperPositions"):
        NamedCursor(client, "mails", 0)
