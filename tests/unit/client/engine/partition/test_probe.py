"""The choice of the appends whose latency is measured, and the time of the measurement."""

from waltz.client.engine.partition.probe import ONE_IN, AppendCounts, LatencyProbe
from waltz.client.engine.submission import AppendFields, Submission


class Nothing(Submission):
    def build(self, high_water_mark: int) -> AppendFields | None:
        return None

    def withdrawn(self) -> None:
        pass

    def refused(self, transaction_id: int) -> None:
        pass

    def failed(self, error: Exception) -> None:
        pass


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_appends_are_counted_by_their_numbers_also_when_these_begin_again() -> None:
    counts = AppendCounts()
    assert counts.sent(0) == 0
    assert counts.sent(100) == 100
    counts.other_ids = 10
    assert counts.sent((1 << 31) - 1) == (1 << 31) - 11
    assert counts.sent(4) == (1 << 31) - 6


def test_an_append_is_measured_to_its_commit_and_to_its_application() -> None:
    clock, one = Clock(), Nothing()
    probe = LatencyProbe(clock)
    probe.begin(one)
    clock.now_s += 2
    probe.committed()
    assert probe.submission is one
    clock.now_s += 3
    probe.applied()
    assert (list(probe.completions_s), list(probe.applications_s)) == ([2.0], [5.0])
    assert probe.submission is None


def test_where_nothing_is_applied_both_are_the_same() -> None:
    clock = Clock()
    probe = LatencyProbe(clock)
    probe.begin(Nothing())
    clock.now_s += 2
    probe.followed()
    assert (list(probe.completions_s), list(probe.applications_s)) == ([2.0], [2.0])
    assert probe.submission is None


def test_what_is_not_committed_is_not_measured() -> None:
    probe, one = LatencyProbe(), Nothing()
    probe.begin(one)
    probe.forget(Nothing())
    probe.committed()
    assert len(probe.completions_s) == 1
    probe.forget(one)
    assert probe.submission is None


def test_a_partition_that_is_left_is_not_measured() -> None:
    probe = LatencyProbe()
    probe.begin(Nothing())
    probe.forget()
    assert probe.submission is None
    assert not probe.completions_s


def test_of_many_appends_few_are_measured() -> None:
    probe = LatencyProbe()

    def measured() -> int:
        before = len(probe.completions_s)
        for number in range(1, 10 * ONE_IN + 1):
            if not number & probe.skipped:
                probe.begin(Nothing())
                probe.followed()
        return len(probe.completions_s) - before

    assert measured() == 16 + 9  # the first ones, and then few
    assert measured() == 10
    probe.adapt(1.0)
    assert measured() == 10 * ONE_IN
    probe.adapt(1000.0)
    assert measured() == 10


def test_what_nobody_reads_does_not_grow() -> None:
    probe = LatencyProbe()
    for _ in range(5000):
        probe.begin(Nothing())
        probe.followed()
    assert len(probe.completions_s) == len(probe.applications_s) == 1000
