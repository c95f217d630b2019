"""The ranges of a scan, given as one range of keys, several, or a prefix. Pure."""

from collections.abc import Iterable

from waltz.table.view import KeyRange

Ranges = KeyRange | Iterable[KeyRange]


def ranges_of(ranges: Ranges | None, prefix: bytes | None = None) -> list[KeyRange] | None:
    """The ranges of a scan as a list; ``None`` for all rows.

    With a prefix, they are ranges of keys of that prefix. Raises ``TypeError`` for other types, and ``ValueError`` for
    a range of another prefix.
    """
    if prefix is not None and not isinstance(prefix, bytes):
        raise TypeError(f"a prefix must be bytes, not {prefix!r}")
    if ranges is None:
        return None if prefix is None else [KeyRange(prefix)]
    is_single = isinstance(ranges, KeyRange | bytes | str) or not isinstance(ranges, Iterable)
    given: Iterable[object] = [ranges] if is_single else ranges
    found: list[KeyRange] = []
    for each in given:
        if not isinstance(each, KeyRange):
            raise TypeError(
                f"scan takes a KeyRange or a list of them, not {each!r}: for example scan(KeyRange(start=b'a', "
                "end=b'c')) for some keys, and scan(prefix=b'users') for all keys of a prefix"
            )
        found.append(each)
    return found if prefix is None else [_within(each, prefix) for each in found]


def _within(key_range: KeyRange, prefix: bytes) -> KeyRange:
    if key_range.prefix not in (b"", prefix) or key_range.end_prefix not in (None, prefix):
        raise ValueError(f"{key_range} is a range of another prefix than {prefix!r}; leave the prefix out of the range")
    return KeyRange(prefix, key_range.start, key_range.end)
