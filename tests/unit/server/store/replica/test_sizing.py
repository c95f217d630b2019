from waltz.common.records import Record
from waltz.server.store.replica.sizing import MAX_COUNT, RecordSizer


def records(count: int, size_bytes: int) -> list[Record]:
    return [Record(i, bytes(16), 0, bytes(size_bytes), 0) for i in range(count)]


def test_begins_with_few_and_comes_to_many_small_ones() -> None:
    sizer = RecordSizer()
    assert sizer.count(1 << 20) == 20
    for _ in range(20):
        sizer.learn(records(10, 100))
    assert sizer.count(13_600) in range(95, 101)
    assert sizer.count(1 << 30) == MAX_COUNT


def test_believes_in_large_ones_at_once() -> None:
    sizer = RecordSizer()
    sizer.learn(records(1, 10_000_000))
    assert sizer.count(1 << 20) == 1
    sizer.learn([])
    assert sizer.count(1) == 1


def test_asks_for_less_after_a_failure_and_for_more_again_when_it_goes_well() -> None:
    sizer = RecordSizer()
    for _ in range(20):
        sizer.learn(records(10, 100))
    full = sizer.count(100_000)
    sizer.shrink()
    assert sizer.count(100_000) in range(full // 2 - 1, full // 2 + 2)
    for _ in range(30):
        sizer.shrink()
    assert sizer.count(1 << 30) == sizer.count(1) + 1 or sizer.count(100_000) == 1
    for _ in range(12):
        sizer.learn(records(10, 100))
    assert sizer.count(100_000) >= full - 1
