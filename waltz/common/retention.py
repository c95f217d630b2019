"""How much of a partition is kept by its properties. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

RETENTION_AGE = "retentionAgeInMillis"
"""The key of the age in the properties of a partition."""
RETENTION_SIZE = "retentionSizeInBytes"
"""The key of the size in the properties of a partition."""


class Retention(NamedTuple):
    """The limits beyond which the oldest transactions of a partition are trimmed; 0 is no limit."""

    age_ms: int = 0
    """Transactions that were committed longer ago are trimmed."""
    size_bytes: int = 0
    """The oldest segments are trimmed, as long as the others have at least this size on a storage."""


def retention_of(properties: Mapping[str, Any]) -> Retention:
    """The limits in the properties of a partition. Raises ``ValueError``."""
    values = [properties.get(key, 0) for key in (RETENTION_AGE, RETENTION_SIZE)]
    for key, value in zip((RETENTION_AGE, RETENTION_SIZE), values, strict=True):
        if type(value) is not int or value < 0:
            raise ValueError(f"{key} is no limit: {value!r}")
    return Retention(*values)
