"""How much of a partition its properties keep."""

import pytest

from waltz.common.retention import Retention, retention_of


def test_without_properties_everything_is_kept() -> None:
    assert retention_of({"change": 1}) == Retention(0, 0)
    assert retention_of({"retentionAgeInMillis": 7, "retentionSizeInBytes": 8}) == Retention(7, 8)


@pytest.mark.parametrize("key", ["retentionAgeInMillis", "retentionSizeInBytes"])
@pytest.mark.parametrize("value", [-1, True, "1", 1.0, None])
def test_what_is_no_limit(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=f"{key} is no limit"):
        retention_of({key: value})
