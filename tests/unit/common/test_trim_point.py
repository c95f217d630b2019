"""The trim point in properties."""

import pytest

from waltz.common.trim_point import TRIM_POINT, trim_point_of


def test_a_partition_without_a_trim_point_is_not_trimmed() -> None:
    assert trim_point_of({}) == trim_point_of({TRIM_POINT: 0}) == 0
    assert trim_point_of({"format": "table", TRIM_POINT: 1 << 40}) == 1 << 40


@pytest.mark.parametrize("value", [-1, "7", 7.0, True, None, []])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="is no transaction"):
        trim_point_of({TRIM_POINT: value})
