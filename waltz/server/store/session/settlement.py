"""Settles the appends that an earlier session left undecided (rule S5)."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from waltz.common.records import RecordHeader
from waltz.server.store.interface import Append

HEADERS_PER_REQUEST = 1000
"""The number of headers in one request: thousands of appends may be undecided, and each request costs a round trip."""


class HeaderSource(Protocol):
    """The session that decides; a :class:`~waltz.server.store.session.session.StoreSession`."""

    @property
    def high_water_mark(self) -> int:
        """The mark that this session has decided and recorded."""
        ...

    async def read_headers(self, first_id: int, max_count: int) -> list[RecordHeader]:
        """Headers of committed records, at least one. Raises ``ReadFailedError``."""
        ...


class Settlement(NamedTuple):
    """The outcome of every undecided append."""

    committed: list[Append]
    failed: list[Append]


async def settle(session: HeaderSource, undecided: Sequence[Append]) -> Settlement:
    """Compare the request ids in the log with those of the appends. The appends are in the order of their ids.

    An append is committed if and only if the record at its id has its request id: another server may have written a
    record there (hazard H1). Raises ``ReadFailedError``; then no outcome is known yet.
    """
    stored: dict[int, bytes] = {}
    if undecided:
        next_id = undecided[0].transaction_id
        last_id = min(undecided[-1].transaction_id, session.high_water_mark)
        while next_id <= last_id:
            headers = await session.read_headers(next_id, min(HEADERS_PER_REQUEST, last_id - next_id + 1))
            stored.update((header.transaction_id, header.req_id) for header in headers)
            next_id = headers[-1].transaction_id + 1
    committed = [append for append in undecided if stored.get(append.transaction_id) == append.req_id]
    failed = [append for append in undecided if stored.get(append.transaction_id) != append.req_id]
    return Settlement(committed, failed)
