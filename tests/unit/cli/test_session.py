import argparse

import pytest

from waltz.cli.session import endpoint, label_keys, number, partition_ranges, port
from waltz.common.ids import Endpoint


@pytest.mark.parametrize(
    ("text", "partitions"),
    [("0", [0]), ("3,1", [1, 3]), ("0-2,7", [0, 1, 2, 7]), ("1-3,2-4", [1, 2, 3, 4]), (" 0 - 1 , 5 ", [0, 1, 5])],
)
def test_ranges_of_partitions(text: str, partitions: list[int]) -> None:
    assert partition_ranges(text) == partitions


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "1,,2", "1-2-3"])
def test_what_is_no_list_of_partitions(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="not a list of partitions like 0-6,7,10-16: "):
        partition_ranges(text)


@pytest.mark.parametrize("text", ["2-1", "0-1000001"])
def test_ranges_that_end_before_they_begin_or_never(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=f"not a range of partitions: '{text}'"):
        partition_ranges(text)


def test_numbers_within_bounds() -> None:
    assert number()("-7") == -7
    assert port("65535") == 65535
    with pytest.raises(argparse.ArgumentTypeError, match="not a whole number: '1.5'"):
        number()("1.5")
    with pytest.raises(argparse.ArgumentTypeError, match="must be at least 1, not 0"):
        port("0")
    with pytest.raises(argparse.ArgumentTypeError, match="must be at most 65535, not 65536"):
        port("65536")


def test_keys_of_labels() -> None:
    assert label_keys("datacenter, rack") == ("datacenter", "rack")
    for text in ("", "rack,", "rack,rack"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a list of keys of labels"):
            label_keys(text)


def test_endpoints() -> None:
    assert endpoint("host:1") == Endpoint("host", 1)
    with pytest.raises(argparse.ArgumentTypeError, match="not of the form host:port: 'host'"):
        endpoint("host")
