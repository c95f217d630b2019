"""Tables that several clusters write become equal, in whatever order everything happens."""

import itertools
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.mirror.table_model import Cluster, Mirror, differences, mirrors_of, settle
from waltz.mirror.errors import MirrorError
from waltz.mirror.merging import MAX_ROWS, Copy, Merged, Versions, batch_of, copy_of, next_group
from waltz.mirror.origins import PREFIX, origins_in
from waltz.table.envelope import Batch, Row, SweepMark, Truncate, decode
from waltz.table.rows import row_key

TEN_MINUTES_MS = 600_000


def orders(events: str) -> Iterator[tuple[str, ...]]:
    """All different orders of some events."""
    return iter(sorted(set(itertools.permutations(events))))


def run(order: Sequence[str], timestamps: Sequence[int], *, settles: bool = True) -> list[str]:
    """Two clusters write one key (a, b), and mirrors make one step (m, n); then mirrors finish."""
    clusters = Cluster("a"), Cluster("b")
    clusters[1].log += [b"no table's"] * 5  # so that its ids are the greater ones
    first, second = mirrors_of(clusters, settles=settles)
    times = iter(timestamps)
    for number, event in enumerate(order):
        if event in "ab":
            timestamp_ms = next(times)
            clusters[event == "b"].write([Row(b"", b"key", b"%d" % number, timestamp_ms)], timestamp_ms)
        else:
            (first if event == "m" else second).step(1)
    settle([first, second])
    return differences(clusters)


def test_small_histories_converge_in_all_orders() -> None:
    """With equal timestamps in all ways: two writes of each cluster, and a step of each mirror anywhere between."""
    for order in orders("aabbmn"):
        for timestamps in itertools.product((1, 2), repeat=4):
            assert not run(order, timestamps), (order, timestamps)


@pytest.mark.deep
def test_small_histories_converge_in_all_orders_with_more_steps() -> None:
    for order in orders("aabbmmnn"):
        for timestamps in ((1, 1, 1, 1), (1, 2, 1, 2), (2, 1, 1, 2), (2, 2, 1, 1)):
            assert not run(order, timestamps), (order, timestamps)


def test_without_settling_equal_timestamps_do_not_converge() -> None:
    """So the model finds it."""
    assert any(run(order, (1, 1), settles=False) for order in orders("abmn"))
    assert not any(run(order, (1, 2), settles=False) for order in orders("abmn")), "different ones do"


EVENTS = st.one_of(
    st.tuples(
        st.just("write"),
        st.integers(0, 2),
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3) | st.none(), st.booleans()), min_size=1, max_size=3),
        st.integers(0, 3),
    ),
    st.tuples(st.just("step"), st.integers(0, 5), st.integers(1, 3)),
    st.tuples(st.just("plan"), st.integers(0, 5), st.integers(1, 3)),
    st.tuples(st.just("append"), st.integers(0, 5), st.none()),
    st.tuples(st.just("crash"), st.integers(0, 5), st.none()),
)


@settings(max_examples=150)
@given(st.integers(2, 3), st.lists(EVENTS, max_size=25))
def test_histories_converge(count: int, events: Sequence[tuple[object, ...]]) -> None:
    """Two or three clusters, each with a mirror from each other one, and a second process of each mirror that thinks it
    is alone; batches, tombstones, deaths, and appends that were planned long before."""
    clusters = [Cluster(name) for name in "abc"[:count]]
    mirrors = [*mirrors_of(clusters), *mirrors_of(clusters)]
    for number, event in enumerate(events):
        kind, which = event[0], event[1]
        assert isinstance(which, int)
        if kind == "write":
            rows = [
                Row(b"", b"key %d" % key, None if tombstone else b"%d/%d" % (number, key), timestamp_ms, tombstone)
                for key, timestamp_ms, tombstone in event[2]  # type: ignore[attr-defined]
            ]
            clusters[which % count].write(rows, event[3])  # type: ignore[arg-type]
            continue
        mirror = mirrors[which % len(mirrors)]
        if kind == "step":
            mirror.step(event[2])  # type: ignore[arg-type]
        elif kind == "plan":
            mirror.plan(event[2])  # type: ignore[arg-type]
        elif kind == "append":
            mirror.append()
        else:
            mirror.crash()
    settle(mirrors)
    assert not differences(clusters)
    for cluster in clusters:
        copied = rows_by_source(cluster)
        for other in clusters:
            if other is not cluster:
                own = [(write.key, write.timestamp_ms, write.value) for write in other.writes]
                assert copied.get(other.name, []) == own, "in order"
                transactions = sorted({write.transaction_id for write in other.writes})
                assert cluster.copied.get(other.name, []) == transactions, "each once, in order"


def rows_by_source(cluster: Cluster) -> dict[str, list[tuple[bytes, int | None, bytes | None]]]:
    """The rows of other clusters in a log, without those that were appended again to win."""
    found: dict[str, list[tuple[bytes, int | None, bytes | None]]] = {}
    positions: dict[str, int] = {}
    for data in cluster.log:
        batch = decode(data)
        assert isinstance(batch, Batch)
        origins = origins_in(batch)
        if origins is not None and origins.position > positions.get(origins.source, -1):
            positions[origins.source] = origins.position
            rows = [(row_key(row.prefix, row.key), row.timestamp_ms, row.value) for row in batch.rows[:-1]]
            found.setdefault(origins.source, []).extend(rows)
    return found


def test_what_was_written_with_a_copy_in_view_wins_over_it() -> None:
    """Although its transaction id is the smaller one: it has the timestamp of the row that it replaces."""
    one, two = Cluster("a"), Cluster("b")
    mirrors = mirrors_of((one, two))
    for number in range(9):
        two.write([Row(b"", b"other", b"%d" % number)], number)
    two.write([Row(b"", b"key", b"first", 7)], 7)
    settle(mirrors)
    one.write([Row(b"", b"key", b"second", 7)], 7)
    settle(mirrors)
    assert one.rows()[row_key(b"", b"key")].value == two.rows()[row_key(b"", b"key")].value == b"second"
    assert not differences((one, two))
    settle([*mirrors_of((one, two))])
    two.write([Row(b"", b"key", b"third", 7)], 7)
    settle(mirrors_of((one, two)))
    assert one.rows()[row_key(b"", b"key")].value == b"third"


def test_a_cut_of_ten_minutes() -> None:
    """Both clusters write the same keys all the time, with the clocks of their own; then the line is there again."""
    clusters = Cluster("a"), Cluster("b")
    mirrors = mirrors_of(clusters)
    for now_ms in range(0, TEN_MINUTES_MS, 2_000):
        for cluster in clusters:
            key = b"key %d" % (now_ms // 2_000 % 17)
            tombstone = now_ms // 2_000 % 5 == 0
            cluster.write([Row(b"p", key, None if tombstone else cluster.name.encode(), None, tombstone)], now_ms)
        if now_ms < 20_000:
            settle(mirrors)
    settle(mirrors)
    assert not differences(clusters)
    assert clusters[0].rows().keys() == clusters[1].rows().keys()


def test_groups_are_whole_transactions_of_one_second_and_one_header() -> None:
    def copy(number: int, rows: int = 1, written_at_ms: int = 0, header: int = 0, size: int = 1) -> Copy:
        return Copy(number, number, header, Batch(written_at_ms, [Row(b"", b"k", bytes(size))] * rows))

    def count(*copies: Copy) -> int:
        return len(next_group(copies))

    assert count() == 0
    assert count(copy(0), copy(1), copy(2)) == 3
    assert count(copy(0, 5_000), copy(1)) == 1, "alone, however large"
    assert count(copy(0, MAX_ROWS - 1), copy(1), copy(2)) == 2
    assert count(copy(0, size=1 << 20), copy(1)) == 1
    assert count(copy(0), copy(1, written_at_ms=1_000), copy(2, written_at_ms=1_001)) == 2
    assert count(copy(0, written_at_ms=1_000), copy(1), copy(2, written_at_ms=1_001)) == 2, "clocks may go back"
    assert count(copy(0, header=1), copy(1, header=1), copy(2)) == 2


def test_what_is_copied() -> None:
    batch = Batch(7, [Row(b"", b"k", b"v"), Row(b"p", b"k", None, 3, True)])
    versions = Versions()
    assert copy_of(4, 9, batch, versions) == Copy(4, 4, 9, batch)
    assert [copy_of(4, 0, each, versions) for each in (None, Batch(7, []), Truncate(7), SweepMark(7))] == [None] * 4
    copied = batch_of("source", [Copy(4, 4, 9, batch), Copy(6, 6, 9, Batch(5, [Row(b"", b"x", b"y")]))], 11)
    assert copied.written_at_ms == 7
    assert copied.rows[:-1] == [Row(b"", b"k", b"v", 7), Row(b"p", b"k", None, 3, True), Row(b"", b"x", b"y", 5)]
    assert copied.rows[-1].timestamp_ms == 11
    assert copy_of(0, 0, copied, versions) is None, "it does not go back"
    assert copy_of(5, 0, batch, versions) == Copy(5, 7, 0, batch), "what follows it has a greater version"
    assert copy_of(8, 0, batch, versions) == Copy(8, 8, 0, batch)
    merged = Merged("source", "target")
    merged.apply(0, copied)
    assert (merged.position, merged.position_version, merged.applied, merged.keys) == (6, 6, 0, 3)
    merged.apply(1, None)
    merged.apply(2, Batch(0, [Row(PREFIX, b"source", b"?"), Row(b"", b"k", b"w", 7)]))
    assert (merged.applied, merged.unsettled) == (2, {}), "what follows a copy wins over it"
    merged = Merged("source", "target")
    merged.apply(0, Batch(0, [Row(b"", b"k", b"w", 7)]))
    merged.apply(1, Batch(0, [Row(b"", b"k", b"v", 7)]))
    merged.apply(2, batch_of("source", [Copy(0, 0, 0, Batch(0, [Row(b"", b"k", b"x", 7)]))], 1))
    (place, keys), standing = merged.next_unsettled(), [*merged.unsettled.values()]
    assert place == 1, "with the same time, and the greater version"
    assert standing[0].origin == (1, 0, "target")
    again = merged.settling_batch(keys, Batch(7, [Row(b"", b"k", b"v", 7)]), 12)
    assert again.rows[:-1] == [Row(b"", b"k", b"v", 7)]
    assert again.written_at_ms == 7
    merged.cannot_settle(keys)
    assert not merged.unsettled
    merged.apply(3, Truncate(8))
    assert (merged.keys, merged.position) == (0, 0)


def test_another_cluster_is_another_source() -> None:
    merged = Merged("one", "target")
    merged.apply(0, batch_of("two", [Copy(5, 5, 0, Batch(1, [Row(b"", b"k", b"v")]))], 1))
    assert merged.position == -1
    with pytest.raises(MirrorError, match="cannot be read"):
        merged.apply(1, Batch(1, [Row(PREFIX, b"one", b"")]))


def test_a_mirror_that_was_overtaken_appends_nothing() -> None:
    source, target = Cluster("a"), Cluster("b")
    source.write([Row(b"", b"k", b"v")], 1)
    slow, fast = Mirror(source, target), Mirror(source, target)
    assert slow.plan(1)
    assert fast.step(1)
    slow.append()
    assert len(target.log) == 1
    assert not slow.step(1)
