"""What a client does when a server says that the wanted transactions are trimmed."""

from collections.abc import Awaitable, Callable

import pytest

import waltz
from tests.unit.client.application import QUICK, Callbacks
from tests.unit.client.fake_server import until
from waltz.client.mock import MockDriver
from waltz.client.mock.connection import MockConnection
from waltz.common.wire.client_server import Message, MountRequest, TransactionDataRequest
from waltz.common.wire.trimmed import Trimmed
from waltz.common.wire.version5 import TransactionDataListRequest

Kinds = set[type[Message]]
FIRST = 2


@pytest.fixture
def trimmed(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    """The kinds of requests for which everything before :data:`FIRST` is trimmed."""
    kinds: Kinds = set()
    handle = MockConnection._handle

    def judged(self: MockConnection, message: Message) -> None:
        if type(message) in kinds and _wanted(message) < FIRST:
            self._send(Trimmed(message.req_id, FIRST))
        else:
            handle(self, message)

    monkeypatch.setattr(MockConnection, "_handle", judged)
    return kinds


def _wanted(message: Message) -> int:
    if isinstance(message, MountRequest):
        return message.client_high_water_mark + 1
    assert isinstance(message, TransactionDataRequest | TransactionDataListRequest)
    return message.transaction_id


def driver() -> MockDriver:
    made = MockDriver(1, versions=(6,))
    for number in range(5):
        made.partitions[0].add(b"%d" % number)
    return made


async def _read(client: waltz.Client, after: int) -> list[int]:
    async with client.feed(0, after=after, until=4) as feed:
        return [each.transaction_id async for each in feed]


READS: dict[str, Callable[[waltz.Client], Awaitable[object]]] = {
    "feed": lambda client: _read(client, -1),
    "feed from the last trimmed one": lambda client: _read(client, FIRST - 2),
}


@pytest.mark.parametrize("name", READS)
async def test_a_read_below_the_trim_point_tells_the_first_available_one(trimmed: Kinds, name: str) -> None:
    trimmed.add(TransactionDataListRequest)
    async with waltz.connect(driver(), options=QUICK) as client:
        for _ in range(2):
            with pytest.raises(waltz.TrimmedError, match="its first available transaction is 2") as told:
                await READS[name](client)
            assert (told.value.partition_id, told.value.first_available) == (0, FIRST)
        assert await _read(client, FIRST - 1) == [2, 3, 4]


async def test_an_application_that_needs_trimmed_transactions_is_told_at_its_appends(trimmed: Kinds) -> None:
    trimmed.add(MountRequest)
    callbacks = Callbacks()
    async with waltz.open_client(callbacks, driver(), options=QUICK) as client:
        await until(lambda: client._engine.partitions[0].mount.refusal is not None)
        refusal = client._engine.partitions[0].mount.refusal
        assert isinstance(refusal, waltz.TrimmedError)
        assert refusal.first_available == FIRST
        with pytest.raises(waltz.TrimmedError):
            client._engine.partitions[0].mount.raise_refusal()


async def test_data_that_are_trimmed_are_not_asked_for_again(trimmed: Kinds) -> None:
    trimmed.add(TransactionDataRequest)
    caught: list[BaseException] = []
    read: list[bytes] = []

    class Reading(Callbacks):
        async def apply_transaction(self, transaction: waltz.Transaction) -> None:
            try:
                read.append(await transaction.data_bytes())
            except waltz.TrimmedError as error:
                caught.append(error)

    async with waltz.open_client(Reading(), driver(), options=QUICK):
        await until(lambda: len(read) == 3)
    assert len(caught) == FIRST
    assert read == [b"2", b"3", b"4"]
