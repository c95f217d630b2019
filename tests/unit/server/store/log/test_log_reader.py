"""Reading through the session that runs: what is not there, what cannot be had yet, and how much comes at a time."""

import asyncio
from typing import cast

import pytest

from waltz.common.records import Record, RecordHeader
from waltz.server.store.interface import ReadFailedError, StoreOptions
from waltz.server.store.log.log_reader import LogReader
from waltz.server.store.session.session import StoreSession


class Session:
    """Holds records up to its mark."""

    def __init__(self, high_water_mark: int, record_size: int = 10) -> None:
        self.high_water_mark = high_water_mark
        self.record_size = record_size
        self.failures = 0
        self.confirmed = True
        self.most_headers = 1000
        self.asked_counts: list[int] = []

    async def read(self, first_id: int, max_count: int) -> list[Record]:
        self.asked_counts.append(max_count)
        if self.failures:
            self.failures -= 1
            raise ReadFailedError("no replica answers")
        last_id = min(first_id + max_count - 1, self.high_water_mark)
        return [Record(each, bytes(16), 0, bytes(self.record_size), 0) for each in range(first_id, last_id + 1)]

    async def read_headers(self, first_id: int, max_count: int) -> list[RecordHeader]:
        self.asked_counts.append(max_count)
        if self.failures or max_count > self.most_headers:
            self.failures = max(self.failures - 1, 0)
            raise ReadFailedError("no replica answers")
        last_id = min(first_id + max_count - 1, self.high_water_mark)
        return [RecordHeader(each, bytes(16), 0) for each in range(first_id, last_id + 1)]

    async def confirm(self, timeout_s: float) -> bool:
        return self.confirmed


class Setup:
    def __init__(self, known_mark: int | None) -> None:
        self.known_mark = known_mark
        self.reader = LogReader(0, StoreOptions(), lambda: self.known_mark)

    def follow(self, session: Session) -> None:
        self.reader.follow(cast("StoreSession", session))


@pytest.mark.parametrize("first_id", [-1, 6])
async def test_what_is_not_in_the_log_is_known_without_a_session(first_id: int) -> None:
    setup = Setup(5)
    assert await setup.reader.read(first_id, 10, 1000, 1.0) == []
    assert await setup.reader.read_headers(first_id, 10, 1.0) == []


async def test_a_session_is_waited_for_until_the_deadline() -> None:
    setup = Setup(None)
    with pytest.raises(ReadFailedError, match=r"transaction 0 could not be read in 2 s: no store session is open"):
        await setup.reader.read(0, 1, 1000, 2.0)
    asyncio.get_running_loop().call_later(1.0, setup.follow, Session(5))
    assert [header.transaction_id for header in await setup.reader.read_headers(3, 1, 2.0)] == [3]


async def test_a_session_that_is_lost_is_not_asked() -> None:
    setup = Setup(5)
    setup.follow(Session(5))
    setup.reader.follow(None)
    assert await setup.reader.confirmed_mark(1.0) is None
    with pytest.raises(ReadFailedError):
        await setup.reader.read(0, 1, 1000, 1.0)


async def test_no_more_bytes_come_than_were_asked_for_but_one_record_always_does() -> None:
    setup = Setup(99)
    setup.follow(Session(99, record_size=100))
    await setup.reader.read(0, 100, 10_000, 1.0)
    assert len(await setup.reader.read(0, 100, 250, 1.0)) <= 2
    assert len(await setup.reader.read(0, 100, 1, 1.0)) == 1


async def test_after_a_failure_less_is_asked_for() -> None:
    setup = Setup(99)
    session = Session(99)
    session.failures = 2
    setup.follow(session)
    assert await setup.reader.read(0, 100, 1_000_000, 5.0)
    assert session.asked_counts == sorted(session.asked_counts, reverse=True)
    assert session.asked_counts[-1] < session.asked_counts[0]


async def test_after_a_failure_fewer_headers_are_asked_for_and_more_again_when_they_come() -> None:
    setup = Setup(999)
    session = Session(999)
    session.most_headers = 10
    setup.follow(session)
    assert 5 <= len(await setup.reader.read_headers(0, 512, 10.0)) <= 10
    assert session.asked_counts == [512, 256, 128, 64, 32, 16, 8]
    session.most_headers = 1000
    found = [len(await setup.reader.read_headers(0, 512, 1.0)) for _ in range(7)]
    assert found == [16, 32, 64, 128, 256, 512, 512]


async def test_headers_that_do_not_come_make_no_read_of_records_smaller() -> None:
    setup = Setup(99)
    session = Session(99)
    session.most_headers = 0
    setup.follow(session)
    with pytest.raises(ReadFailedError):
        await setup.reader.read_headers(0, 100, 2.0)
    assert session.asked_counts[-1] == 1
    assert len(await setup.reader.read(0, 20, 1_000_000, 1.0)) == 20


@pytest.mark.parametrize("confirmed", [True, False])
async def test_the_session_confirms_the_mark(confirmed: bool) -> None:
    setup = Setup(5)
    session = Session(5)
    session.confirmed = confirmed
    setup.follow(session)
    assert await setup.reader.confirmed_mark(1.0) == (5 if confirmed else None)
