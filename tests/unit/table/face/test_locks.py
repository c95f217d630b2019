"""Locks of rows."""

from hashlib import blake2b

from waltz.table.face.locks import TABLE_LOCK, row_lock


def test_a_lock_is_the_published_hash() -> None:
    digest = blake2b(b"p\x00\x01k", digest_size=8).digest()
    lock = row_lock(b"p", b"k")
    assert (lock.name, lock.id) == ("waltz.table.row", int.from_bytes(digest, "big", signed=True))
    assert (TABLE_LOCK.name, TABLE_LOCK.id) == ("waltz.table", 0)


def test_rows_have_locks_of_their_own() -> None:
    pairs = [(b"", b""), (b"", b"a"), (b"a", b""), (b"a", b"a"), (b"\x00", b"a"), (b"", b"\x00a")]
    assert len({row_lock(*pair) for pair in pairs}) == len(pairs)
    assert row_lock(b"a", b"b") == row_lock(b"a", b"b")
