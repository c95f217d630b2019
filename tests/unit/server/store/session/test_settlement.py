import pytest

from waltz.common.records import RecordHeader
from waltz.server.store.interface import Append, ReadFailedError
from waltz.server.store.session.settlement import HEADERS_PER_REQUEST, settle


class Log:
    """Committed request ids by transaction id; delivers at most three headers at a time."""

    def __init__(self, req_ids: list[bytes]) -> None:
        self.req_ids = req_ids
        self.high_water_mark = len(req_ids) - 1
        self.requests: list[tuple[int, int]] = []

    async def read_headers(self, first_id: int, max_count: int) -> list[RecordHeader]:
        assert first_id + max_count - 1 <= self.high_water_mark
        assert 0 < max_count <= HEADERS_PER_REQUEST
        self.requests.append((first_id, max_count))
        end = first_id + min(3, max_count)
        return [RecordHeader(i, self.req_ids[i], 0) for i in range(first_id, end)]


def append(transaction_id: int, req_id: bytes) -> Append:
    made = Append(req_id, 0, Append.encode_body(0, b"", 0))
    made.transaction_id = transaction_id
    return made


async def test_an_append_is_committed_if_its_own_request_id_stands_at_its_id() -> None:
    log = Log([b"0", b"1", b"2", b"3", b"4", b"5", b"6"])
    undecided = [
        append(2, b"2"),
        append(3, b"3"),
        append(4, b"4"),
        append(5, b"5"),
        append(6, b"mine"),
        append(7, b"7"),
    ]
    settlement = await settle(log, undecided)
    assert settlement.committed == undecided[:4]
    assert settlement.failed == undecided[4:]
    assert log.requests == [(2, 5), (5, 2)]


async def test_nothing_undecided_or_nothing_there() -> None:
    log = Log([b"0"])
    assert await settle(log, []) == ([], [])
    lost = [append(1, b"1")]
    assert await settle(log, lost) == ([], lost)
    assert log.requests == []


async def test_what_cannot_be_read_stays_undecided() -> None:
    class Unreadable(Log):
        async def read_headers(self, first_id: int, max_count: int) -> list[RecordHeader]:
            raise ReadFailedError("no replica")

    with pytest.raises(ReadFailedError):
        await settle(Unreadable([b"0"]), [append(0, b"0")])
