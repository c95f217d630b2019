import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import WaltzError
from waltz.common.partition_ids import check_partition, id_ranges, named_partitions


@pytest.mark.parametrize("partition_id", [-1, 4, 9])
def test_a_partition_that_the_cluster_does_not_have(partition_id: int) -> None:
    text = rf"^there is no partition {partition_id}; the cluster has 4 \(0 to 3\)$"
    with pytest.raises(WaltzError, match=text):
        check_partition(partition_id, 4)
    with pytest.raises(ValueError, match=text):
        check_partition(partition_id, 4, ValueError)


def test_partitions_that_the_cluster_has() -> None:
    for partition_id in range(4):
        check_partition(partition_id, 4)


@pytest.mark.parametrize(("ids", "text"), [([], ""), ([7], "7"), ([2, 0, 1], "0-2"), ([9, 0, 2, 3], "0, 2-3, 9")])
def test_ranges(ids: list[int], text: str) -> None:
    assert id_ranges(ids) == text
    assert id_ranges(ids, ",") == text.replace(" ", "")
    assert named_partitions(ids) == f"partition{'' if len(ids) == 1 else 's'} {text}"


@given(st.sets(st.integers(0, 40)))
def test_ranges_name_each_id_once(ids: set[int]) -> None:
    named: list[int] = []
    for text in filter(None, id_ranges(ids).split(", ")):
        first, _, last = text.partition("-")
        named += range(int(first), int(last or first) + 1)
    assert named == sorted(ids)
