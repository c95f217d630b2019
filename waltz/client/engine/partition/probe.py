"""Counts appends, and measures their latencies."""

import time
from collections import deque
from collections.abc import Callable

from waltz.client.engine.submission import Submission
from waltz.common.ids import SEQ_NUM_MASK

ONE_IN = 16
_FIRST = 16
_MEASURED_PER_S = 50

_LATENCIES_KEPT = 1000
"""The largest number of latencies of one partition that are kept until they are carried over. Beyond it the oldest are
dropped."""


class AppendCounts:
    """Counts of the outcomes of one partition's appends."""

    __slots__ = ("_counted", "_counted_seq_num", "acknowledged", "late", "lock_failures", "other_ids", "retracted")

    def __init__(self) -> None:
        self.lock_failures = 0
        """The number of appends refused because of a lock."""
        self.late = 0
        """The number of checks that have found appends undecided for ``client.longWaitThreshold``."""
        self.acknowledged = 0
        """The number of appends acknowledged before their commit."""
        self.retracted = 0
        """The number of these that were lost."""
        self.other_ids = 0
        """The number of request ids that were not used for appends."""
        self._counted = 0
        self._counted_seq_num = 0

    def sent(self, last_seq_num: int) -> int:
        """The number of sent appends. Each attempt of a transaction counts.

        The count is computed from the numbers in the request ids, without a cost for appends. So a call is needed
        before the numbers wrap. Not for two threads at a time.
        """
        self._counted += (last_seq_num - self._counted_seq_num) & SEQ_NUM_MASK
        self._counted_seq_num = last_seq_num
        return self._counted - self.other_ids


class LatencyProbe:
    """Measures a sample of the appends, one at a time, so that the other appends cost nothing.

    The first appends are all measured. Then, at a high rate, one in :data:`ONE_IN` is measured, if the measurement
    before has ended. The latency of an append that was lost and sent again counts from the first attempt.
    """

    __slots__ = ("_clock", "_left", "_sent_at_s", "applications_s", "completions_s", "skipped", "submission")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.skipped = 0
        """An append is measured if its number has none of these bits."""
        self._left = _FIRST  # the number of first appends that are all measured
        self.submission: Submission | None = None
        """The append that is being measured."""
        self.completions_s: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self.applications_s: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        self._clock = clock
        self._sent_at_s = 0.0

    def adapt(self, appends_per_s: float) -> None:
        """Adapt the share of measured appends to the rate."""
        self.skipped = 0 if appends_per_s < _MEASURED_PER_S else ONE_IN - 1
        self._left = 0  # from here on the rate decides

    def begin(self, submission: Submission) -> None:
        """Note that the measured append was sent."""
        self.submission = submission
        self._sent_at_s = self._clock()
        if self._left:
            self._left -= 1
            if not self._left:
                self.skipped = ONE_IN - 1

    def committed(self) -> None:
        """Note that it was found in the feed."""
        self.completions_s.append(self._clock() - self._sent_at_s)

    def applied(self) -> None:
        """Note that it was applied."""
        self.applications_s.append(self._clock() - self._sent_at_s)
        self.submission = None

    def followed(self) -> None:
        """Note that it was found in the feed of a client without an applier."""
        duration_s = self._clock() - self._sent_at_s
        self.completions_s.append(duration_s)
        self.applications_s.append(duration_s)
        self.submission = None

    def forget(self, submission: Submission | None = None) -> None:
        """Note that it ended without a commit. ``None`` stands for any append."""
        if submission is None or submission is self.submission:
            self.submission = None
