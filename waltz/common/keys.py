"""Values as compact JSON, and the partition of a key. Pure.

All code that chooses partitions by keys has to agree for ever: the rule is that of the Spark sink's ``hashColumns``.
"""

import base64
import datetime as dt
import json
import math
from decimal import Decimal

from waltz.common.checksum import crc32


def to_json(value: object) -> str:
    """Compact JSON: null members are left out, numbers that JSON lacks are text, bytes are base64.

    Raises ``TypeError`` for other types.
    """
    return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def partition_for(key: object, partition_count: int) -> int:
    """The partition of a key: the CRC-32 of the JSON array of its parts, modulo ``partition_count``.

    The Spark sink gives a row with these values in its ``hashColumns`` to the same partition.

    Args:
        key: A tuple is a key of several parts (columns), anything else one part: strings, whole numbers, ``Decimal``,
            dates and times, bytes, booleans, ``None``, floats, lists and dictionaries of these. ``7`` and ``"7"`` are
            different keys.
        partition_count: Number of partitions.

    Raises:
        TypeError: The key is of another type.
        ValueError: A string is no Unicode text, or the count is below 1.

    Examples:
        ```python
        print(waltz.partition_for("alice", 16), waltz.partition_for(("eu", 4711), 16))
        await client.append(client.partition_for("alice"), b"an order of alice's")
        ```
    """
    if partition_count < 1:
        raise ValueError(f"a cluster has at least one partition, not {partition_count}")
    parts = [*key] if isinstance(key, tuple) else [key]
    try:
        text = to_json(parts)
    except TypeError:
        raise TypeError(
            f"a key consists of strings, numbers, dates, bytes and the like, or is a tuple of these, not {key!r}"
        ) from None
    return crc32(text.encode()) % partition_count


def place_of(key: bytes, count: int) -> int:
    """The index of a key's partition among ``count``: its CRC-32 (zlib's) modulo their number.

    The Spark sink places the payloads of transactions in the same way.
    """
    return crc32(key) % count


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dt.datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, dt.timedelta):
        return value.total_seconds()
    return value
