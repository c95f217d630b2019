"""A request that waits."""

from tests.unit.server.fakes import append, channel_of, flush, new_link
from waltz.server.requests.pending import Awaits, Pending


def test_who_has_closed_the_connection_waits_for_no_answer_but_an_append_is_executed() -> None:
    link = new_link()
    flushing, appending = Pending(link, flush(1)), Pending(link, append(2))
    assert [found.abandoned for found in (flushing, appending)] == [False, False]
    channel_of(link).abort()
    assert [found.abandoned for found in (flushing, appending)] == [True, False]
    appending.end()
    assert appending.abandoned
    assert appending.awaits is Awaits.NOTHING


def test_data_and_locks_count() -> None:
    link = new_link()
    small = Pending(link, append(1)).size_bytes
    assert Pending(link, append(1, data=bytes(1001))).size_bytes == small + 1000
    assert Pending(link, append(1, write=range(10), read=range(10))).size_bytes >= small + 20 * 32
