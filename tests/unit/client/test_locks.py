"""The hash of locks, against the original's."""

import json
from pathlib import Path

import pytest

from waltz.client.locks import PartitionLocalLock, lock_id

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
