"""The log against a naive model, with crashes, restarts and failing disks at any operation.

Whatever happens, a log that is opened again holds a prefix of what was appended that contains everything acknowledged:
never a gap, never a wrong byte.
"""

import contextlib
import errno
import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.unit.storage.crash_files import CrashFiles, CrashNow
from tests.unit.storage.log_testing import DIRECTORY, append, open_log, open_segment_count, read_all, record
from waltz.common.records import Record
from waltz.storage.disk.log.log import PartitionLog
from waltz.storage.disk.segment.segment_format import decode_index

THRESHOLD = 400
SEEDS = st.integers(0, 1 << 32)
SIZES = st.lists(st.integers(0, 12), min_size=1, max_size=4)
FAULTS = st.sampled_from([errno.EIO, errno.ENOSPC])


class LogMachine(RuleBasedStateMachine):
    """``acknowledged`` is the model: the records that must be there."""

    def __init__(self) -> None:
        super().__init__()
        self.files = CrashFiles()
        self.acknowledged: list[Record] = []
        self.low_water_mark = -1
        self.versions = 0
        self.log = self.open()

    def open(self) -> PartitionLog:
        return open_log(self.files, low_water_mark=self.low_water_mark, threshold=THRESHOLD, capacity=1)

    def batches(self, sizes: list[int]) -> list[list[Record]]:
        """Fresh records; never the same payload twice for an id, so that a stale one is noticed."""
        self.versions += 1
        choices = random.Random(self.versions)
        next_id = len(self.acknowledged)
        batches = []
        for size in sizes:
            batches.append([record(next_id + i, choices.randbytes(choices.randint(0, 90))) for i in range(size)])
            next_id += size
        return batches

    def reopen(self, shortest: int, longest: list[Record]) -> None:
        """Open again: the log must be a prefix of ``longest`` with at least ``shortest`` records."""
        self.log = self.open()
        found = read_all(self.log)
        assert len(found) >= shortest
        assert found == longest[: len(found)]
        assert self.log.damage.ranges == ()
        self.acknowledged = found

    @rule(sizes=SIZES)
    def append(self, sizes: list[int]) -> None:
        batches = self.batches(sizes)
        append(self.log, *batches)
        self.acknowledged += [r for batch in batches for r in batch]

    @rule(sizes=SIZES, extra=st.integers(1, 5))
    def append_out_of_order(self, sizes: list[int], extra: int) -> None:
        batches = self.batches(sizes)
        next_id = len(self.acknowledged) + sum(sizes)
        prepared = append(self.log, *batches, [record(next_id), record(next_id + 1 + extra)])
        assert [error is None for error in prepared.errors] == [True] * len(sizes) + [False]
        self.acknowledged += [r for batch in batches for r in batch] + [record(next_id)]

    @rule(sizes=SIZES, more=SIZES)
    def append_ahead(self, sizes: list[int], more: list[int]) -> None:
        self.write_ahead(self.batches(sizes + more), len(sizes))

    def write_ahead(self, batches: list[list[Record]], first_count: int) -> None:
        """Two groups, the second of which is written before the first is synced, if no other segment has to begin."""
        log, groups = self.log, (batches[:first_count], batches[first_count:])
        first = log.prepare(groups[0])
        if not log.write(first):
            log.write_and_sync(first)
            log.publish(first)
            self.acknowledged += [r for batch in groups[0] for r in batch]
        second = log.prepare(groups[1], after=first)
        written = log.write(second, after=first)
        if log.max_transaction_id < first.end.next_transaction_id - 1:
            log.sync(first)
            log.publish(first)
            self.acknowledged += [r for batch in groups[0] for r in batch]
        if written:
            log.sync(second)
        else:
            log.write_and_sync(second)
        log.publish(second)
        self.acknowledged += [r for batch in groups[1] for r in batch]

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        target = round(self.low_water_mark + fraction * (len(self.acknowledged) - 1 - self.low_water_mark))
        assert self.log.truncate(target) == min(target, len(self.acknowledged) - 1)
        del self.acknowledged[target + 1 :]

    @rule()
    def set_low_water_mark(self) -> None:
        self.log.flush()
        self.low_water_mark = self.log.max_transaction_id

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        assert self.files.open_files == 0
        self.reopen(len(self.acknowledged), self.acknowledged)

    @rule(seed=SEEDS, again=st.booleans())
    def crash(self, seed: int, again: bool) -> None:
        self.files.crash(random.Random(seed))
        self.reopen(len(self.acknowledged), self.acknowledged)
        if again:
            self.files.crash(random.Random(seed + 1))
            self.reopen(len(self.acknowledged), self.acknowledged)

    @rule(sizes=SIZES, seed=SEEDS, after=st.integers(0, 25), short=st.none() | st.integers(0, 200), power=st.booleans())
    def crash_while_appending(self, sizes: list[int], seed: int, after: int, short: int | None, power: bool) -> None:
        batches = self.batches(sizes)
        self.files.fail(CrashNow(), after=after, short=short)
        before = len(self.acknowledged)
        possible = self.acknowledged + [r for batch in batches for r in batch]
        try:
            append(self.log, *batches)
            before = len(possible)
        except CrashNow:
            pass
        self.stop(seed, power)
        self.reopen(before, possible)
        # What was found has become durable by opening, whatever it was before.
        self.stop(seed + 1, True)
        self.reopen(len(self.acknowledged), self.acknowledged)

    @rule(
        sizes=SIZES,
        more=SIZES,
        seed=SEEDS,
        after=st.integers(0, 25),
        short=st.none() | st.integers(0, 200),
        fault=st.sampled_from([CrashNow(), OSError(errno.EIO, "injected")]),
        power=st.booleans(),
    )
    def crash_while_writing_ahead(
        self,
        sizes: list[int],
        more: list[int],
        seed: int,
        after: int,
        short: int | None,
        fault: BaseException,
        power: bool,
    ) -> None:
        batches = self.batches(sizes + more)
        possible = self.acknowledged + [r for batch in batches for r in batch]
        self.files.fail(fault, after=after, short=short)
        with contextlib.suppress(CrashNow, OSError):
            self.write_ahead(batches, len(sizes))
        self.stop(seed, power)
        self.reopen(len(self.acknowledged), possible)

    @rule(fraction=st.floats(0, 1), seed=SEEDS, after=st.integers(0, 12), power=st.booleans())
    def crash_while_truncating(self, fraction: float, seed: int, after: int, power: bool) -> None:
        target = round(self.low_water_mark + fraction * (len(self.acknowledged) - 1 - self.low_water_mark))
        self.files.fail(CrashNow(), after=after)
        longest = self.acknowledged
        try:
            self.log.truncate(target)
            longest = self.acknowledged[: target + 1]
        except CrashNow:
            pass
        self.stop(seed, power)
        self.reopen(min(target + 1, len(self.acknowledged)), longest)

    @rule(seed=SEEDS, after=st.integers(0, 30), power=st.booleans())
    def crash_while_opening(self, seed: int, after: int, power: bool) -> None:
        self.stop(seed, power)
        self.files.fail(CrashNow(), after=after)
        with contextlib.suppress(CrashNow):
            self.open()
        self.stop(seed + 1, power)
        self.reopen(len(self.acknowledged), self.acknowledged)

    @precondition(lambda self: self.log.read_only_reason is None)
    @rule(
        sizes=SIZES,
        code=FAULTS,
        operation=st.sampled_from(["write", "datasync", "sync", "sync_directory", "open", None]),
        after=st.integers(0, 4),
        short=st.none() | st.integers(0, 200),
        seed=SEEDS,
        power=st.booleans(),
    )
    def failing_disk(
        self, sizes: list[int], code: int, operation: str | None, after: int, short: int | None, seed: int, power: bool
    ) -> None:
        batches = self.batches(sizes)
        group = [r for batch in batches for r in batch]
        prepared = self.log.prepare(batches)
        self.files.fail(OSError(code, "injected"), operation=operation, after=after, short=short)
        try:
            self.log.write_and_sync(prepared)
        except OSError:
            assert self.log.read_only_reason is not None
            assert self.log.max_transaction_id == len(self.acknowledged) - 1
            assert read_all(self.log) == self.acknowledged
            before = len(self.acknowledged)
        else:
            self.log.publish(prepared)
            before = len(self.acknowledged) + len(group)
        self.stop(seed, power)
        self.reopen(before, self.acknowledged + group)

    def stop(self, seed: int, power: bool) -> None:
        if power:
            self.files.crash(random.Random(seed))
        else:
            self.files.restart()

    @invariant()
    def holds_what_was_acknowledged(self) -> None:
        assert self.log.max_transaction_id == len(self.acknowledged) - 1
        assert read_all(self.log) == self.acknowledged
        if self.acknowledged:
            middle = len(self.acknowledged) // 2
            assert self.log.read(middle, 1) == [self.acknowledged[middle]]
        assert open_segment_count(self.log) <= 2

    @invariant()
    def index_files_have_one_entry_for_each_record(self) -> None:
        names = self.files.list_directory(DIRECTORY)
        firsts = [int(name.removesuffix(".seg")) for name in names if name.endswith(".seg")]
        for first, following in zip(firsts, [*firsts[1:], len(self.acknowledged)], strict=True):
            entries = decode_index(self.files.contents(f"{DIRECTORY}/{first:019d}.idx")[128:])
            assert len(entries) == following - first


LogMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestLogAgainstModel = LogMachine.TestCase
