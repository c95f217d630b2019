"""Failures of the original in words for people."""

import pytest

from waltz.common.java_text import for_people


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("com.wepay.waltz.storage.exception.StorageException: no such partition: 77", "no such partition: 77"),
        ("java.lang.Exception: Partition:9 is not assigned.", "Partition:9 is not assigned."),
        ("java.io.IOException: No space left on device", "No space left on device"),
        ("java.nio.file.NoSuchFileException: /data/0", "there is no file /data/0"),
        ("java.lang.NullPointerException", "NullPointerException"),
        ("a.b.Outer$Inner: what: else", "what: else"),
        ("", ""),
        ("no class here: at all", "no class here: at all"),
        ("storage-1.example.com: is down", "storage-1.example.com: is down"),
        ("see a.b.C: there", "see a.b.C: there"),
    ],
)
def test_the_class_is_left_out(text: str, shown: str) -> None:
    assert for_people(text) == shown
