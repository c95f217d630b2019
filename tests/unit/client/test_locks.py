"""The hash of locks, against the original's."""

import copy
import json
import pickle
import struct
from pathlib import Path

import pytest

from waltz.client.locks import NO_LOCKS, PartitionLocalLock, lock_array, lock_id

WIRE = Path(__file__).parents[2] / "data" / "wire.jsonl"


def test_every_hash_of_the_original() -> None:
    lines = WIRE.read_text(encoding="utf-8").splitlines()
    vectors = [each for line in lines if (each := json.loads(line))["codec"] == "lockhash"]
    assert len(vectors) > 20
    for vector in vectors:
        lock = PartitionLocalLock(vector["fields"]["name"], vector["fields"]["id"])
        assert lock.hash == vector["hash"], lock


@pytest.mark.parametrize(
    ("name", "lock_id", "expected"),
    [
        ("mock", 1, 3357067),
        ("mock", 2, 3357064),
        ("", 0, 0),
        ("account", -1, -1177318867),
        ("account", 4294967296, -1177318868),
        ("test", 100, 3556598),
        ("ロック", 12345678901, -547234354),
        ("\N{GRINNING FACE}x", 3, 54959990),
    ],
)
def test_known_hashes(name: str, lock_id: int, expected: int) -> None:
    assert PartitionLocalLock(name, lock_id).hash == expected


def test_equality_is_that_of_name_and_id() -> None:
    assert PartitionLocalLock("a", 1) == PartitionLocalLock("a", 1)
    assert len({PartitionLocalLock("a", 1), PartitionLocalLock("a", 1), PartitionLocalLock("a", 2)}) == 2
    assert PartitionLocalLock("a", 1) != PartitionLocalLock("b", 1)


def test_lone_surrogates_have_a_hash() -> None:
    assert PartitionLocalLock("\ud83d", 0).hash == 0xD83D
    assert PartitionLocalLock("name", "\ud83d") == PartitionLocalLock("name", lock_id(b"\xed\xa0\xbd"))


@pytest.mark.parametrize(
    ("text", "number"), [("", -1970711489451281740), ("alice", 5614559425216174729), ("Zoë", 8691867044761536922)]
)
def test_strings_stand_for_numbers_that_must_never_change(text: str, number: int) -> None:
    """The first eight bytes of what ``b2sum --length=64`` prints."""
    lock = PartitionLocalLock("account", text)
    assert lock.id == number
    assert lock == PartitionLocalLock("account", number)
    assert lock.hash == PartitionLocalLock("account", number).hash


def test_impossible_locks() -> None:
    with pytest.raises(TypeError):
        PartitionLocalLock(None, 1)  # type: ignore[arg-type]  # the mistake under test
    with pytest.raises(TypeError, match="must be an integer or a string, not bytes"):
        PartitionLocalLock("a", b"1")  # type: ignore[arg-type]  # the mistake under test
    for too_large in (1 << 63, -(1 << 63) - 1):
        with pytest.raises(ValueError, match="64 bits"):
            PartitionLocalLock("a", too_large)


def test_a_lock_does_not_change() -> None:
    lock = PartitionLocalLock("account", 7)
    for name in ("name", "id", "hash", "other"):
        with pytest.raises(AttributeError):
            setattr(lock, name, 1)
    assert repr(lock) == "PartitionLocalLock(name='account', id=7)"
    assert pickle.loads(pickle.dumps(lock)) == copy.copy(lock) == copy.deepcopy(lock) == lock
    assert lock != ("account", 7)
    match lock:
        case PartitionLocalLock(name, number):
            assert (name, number) == ("account", 7)


@pytest.mark.parametrize("count", [0, 1, 2, 15, 16, 17, 1000])
def test_what_travels_of_locks(count: int) -> None:
    locks = [PartitionLocalLock("account", number) for number in range(-count, 0)]
    expected = struct.pack(f">i{count}i", count, *(lock.hash for lock in locks))
    assert lock_array(locks) == lock_array(iter(locks)) == expected
    assert lock_array(()) == NO_LOCKS


@pytest.mark.parametrize("wrong", [["account"], [None], 5, PartitionLocalLock("account", 1)])
def test_what_is_no_list_of_locks(wrong: object) -> None:
    with pytest.raises(TypeError, match="locks must be a list of PartitionLocalLock, not"):
        lock_array(wrong)  # type: ignore[arg-type]  # the mistake under test
