"""The trim point in the properties of a partition: the first transaction that was not trimmed. Pure."""

from collections.abc import Mapping
from typing import Any

TRIM_POINT = "trimPoint"
"""The key in the properties of a partition."""


def trim_point_of(properties: Mapping[str, Any]) -> int:
    """The trim point in the properties of a partition; 0 if nothing was trimmed. Raises ``ValueError``."""
    point = properties.get(TRIM_POINT, 0)
    if type(point) is not int or point < 0:
        raise ValueError(f"{TRIM_POINT} is no transaction: {point!r}")
    return point
