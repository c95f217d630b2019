"""Gauges, counters, meters, timers and histograms of a process.

Metrics are named by group and name, joined with a dot. Rates and samples follow the library of the original: averages
over 1, 5 and 15 minutes that decay in steps of five seconds, and durations in which the last five minutes prevail,
counted by size (:mod:`waltz.common.metrics.durations`). There is no timer: decay is computed when a metric is marked or
read. :mod:`waltz.common.metrics.exposition` formats metrics.

Metrics that the original lacks are registered with a :class:`Description` and read by Prometheus only: the JSON stays
as the original's tools expect it.

All metrics belong to one event loop; nothing is locked.
"""

import math
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from waltz.common.metrics.durations import BOUNDS_S, DurationCounts, Snapshot

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"] | Mapping[int, "Json"]
"""An argument of ``json.dumps``; integer keys become strings."""

Gauge = Callable[[], Json]
"""Reads a value when metrics are read; must be quick. An exception becomes the gauge's error."""

_TICK_S = 5.0
_MINUTES = (1, 5, 15)
_DECAYS = tuple(math.exp(-_TICK_S / 60 / minutes) for minutes in _MINUTES)


class Counter:
    """A number that goes up and down."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def add(self, number: int = 1) -> None:
        """Add ``number``."""
        self.count += number


class Meter:
    """Counts events and computes their rates per second."""

    __slots__ = ("_clock", "_next_tick_s", "_rates", "_start_s", "_uncounted", "count")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.count = 0
        self._clock = clock
        self._start_s = clock()
        self._next_tick_s = self._start_s + _TICK_S
        self._uncounted = 0
        self._rates: tuple[float, ...] | None = None

    def mark(self, number: int = 1, now_s: float | None = None) -> None:
        """Count ``number`` events; ``now_s`` is the clock's time, if the caller has just read it."""
        if now_s is None:
            now_s = self._clock()
        if now_s >= self._next_tick_s:
            self._tick(now_s)
        self.count += number
        self._uncounted += number

    @property
    def mean_rate(self) -> float:
        """Events per second since the beginning."""
        elapsed_s = self._clock() - self._start_s
        return self.count / elapsed_s if self.count and elapsed_s > 0 else 0.0

    @property
    def rates(self) -> tuple[float, ...]:
        """Events per second, averaged over 1, 5 and 15 minutes; 0 during the first five seconds."""
        now_s = self._clock()
        if now_s >= self._next_tick_s:
            self._tick(now_s)
        return self._rates or (0.0,) * len(_MINUTES)

    def _tick(self, now_s: float) -> None:
        """Do all steps that are due. The first step takes the marked events; the others take none."""
        ticks = int((now_s - self._next_tick_s) // _TICK_S) + 1
        rate = self._uncounted / _TICK_S
        if self._rates is None:
            first = [rate] * len(_MINUTES)
        else:
            first = [rate + (old - rate) * decay for old, decay in zip(self._rates, _DECAYS, strict=True)]
        self._rates = tuple(new * decay ** (ticks - 1) for new, decay in zip(first, _DECAYS, strict=True))
        self._uncounted = 0
        self._next_tick_s += ticks * _TICK_S


class Timer:
    """Durations of events, and their rates."""

    __slots__ = ("_clock", "durations", "meter")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.meter = Meter(clock)
        self.durations = DurationCounts(clock())

    def update(self, duration_s: float, count: int = 1, now_s: float | None = None) -> None:
        """Count events that have ended: one call for a whole batch.

        Args:
            duration_s: The duration of each event, in seconds.
            count: The number of events.
            now_s: The time on the registry's clock, if the caller has just read it.
        """
        if now_s is None:
            now_s = self._clock()
        self.meter.mark(count, now_s)
        self.durations.add(duration_s, count, now_s)

    @property
    def total_s(self) -> float:
        """The sum of all durations."""
        return self.durations.total_s

    def snapshot(self) -> Snapshot:
        """Statistics of the last few minutes."""
        return self.durations.snapshot(self._clock())


DURATION_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of the buckets of durations: from a fast disk to an alarm."""


class Histogram:
    """Counts observations by size: its own ones and those of included timers."""

    __slots__ = ("_included", "bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        """Upper bounds of all buckets but the last, ascending; a bound belongs to its bucket."""
        self.counts = [0] * (len(bounds) + 1)
        """The own observations by bucket."""
        self.total = 0.0
        """The sum of the own observations."""
        self._included: list[DurationCounts] = []

    def observe(self, value: float, count: int = 1) -> None:
        """Count ``count`` observations of the same value: one call for a whole batch."""
        self.counts[bisect_left(self.bounds, value)] += count
        self.total += value * count

    def include(self, durations: DurationCounts) -> None:
        """Include the events of a timer in each read. All bounds must be among those of durations."""
        self._included.append(durations)

    def exclude(self, durations: DurationCounts) -> None:
        """Keep the counts of an included timer, and release the timer; no effect on timers that are not included."""
        if any(each is durations for each in self._included):
            self._included = [each for each in self._included if each is not durations]
            self._take(durations, self.counts)
            self.total += durations.total_s

    def read(self) -> tuple[list[int], float]:
        """All observations by bucket, and their sum."""
        counts = list(self.counts)
        for durations in self._included:
            self._take(durations, counts)
        return counts, self.total + sum(durations.total_s for durations in self._included)

    def _take(self, durations: DurationCounts, counts: list[int]) -> None:
        for place, count in durations.counts().items():
            longest_s = BOUNDS_S[place] if place < len(BOUNDS_S) else math.inf
            counts[bisect_left(self.bounds, longest_s)] += count


class Histograms:
    """Histograms that differ by labels. Their number is the caller's responsibility."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.by_labels: dict[tuple[str, ...], Histogram] = {}

    def of(self, *labels: str) -> Histogram:
        """The histogram of these values of the labels; created if it does not exist."""
        found = self.by_labels.get(labels)
        if found is None:
            found = self.by_labels[labels] = Histogram(self._bounds)
        return found

    def keep(self, labels: Iterable[tuple[str, ...]]) -> None:
        """Keep only the histograms of these labels."""
        kept = set(labels)
        self.by_labels = {found: histogram for found, histogram in self.by_labels.items() if found in kept}


Kind = Literal["counter", "gauge", "histogram", "summary"]


class Description(NamedTuple):
    """Description of the samples of one name."""

    name: str
    """The name in Prometheus: with its unit, and for counters with ``_total``."""
    kind: Kind
    labels: tuple[str, ...]
    meaning: str
    """The meaning, as a sentence."""


Readings = Iterable[tuple[tuple[str, ...], float]]
"""Pairs: the values of the labels, and the value of the metric."""


class GaugeForm(NamedTuple):
    """The form of a gauge in the text format of Prometheus; JSON has only gauges."""

    label: str | None = None
    """Label for the keys of a mapping, of which each entry is a sample. Without a label mappings are left out."""
    counts: bool = False
    """The value only grows while the process lives: a counter."""
    name: str | None = None
    """A name in place of the metric's own, with the unit."""


class MetricId(NamedTuple):
    """Group and name of a metric."""

    group: str
    name: str

    @property
    def full_name(self) -> str:
        """``group.name``."""
        return f"{self.group}.{self.name}"


def _nothing() -> None:
    return


_Kind = dict[MetricId, Gauge] | dict[MetricId, Counter] | dict[MetricId, Meter] | dict[MetricId, Timer]


class Registry:
    """All metrics of a process (or of one node, where several live in a process).

    ``clock`` gives monotonic seconds; simulations pass their loop's.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        """Monotonic seconds, for durations that timers are given: finer than a loop's time."""
        self.labels: dict[str, str] = {}
        """Labels of all samples of this registry, for readers of several registries."""
        self.refresh: Callable[[], None] = _nothing
        """Called before each read of the metrics; carries over numbers that are counted elsewhere."""
        self.gauges: dict[MetricId, Gauge] = {}
        self.forms: dict[MetricId, GaugeForm] = {}
        """Forms of gauges that are neither a number nor a text."""
        self.descriptions: dict[str, Description] = {}
        """Descriptions of samples, by their names in Prometheus."""
        self.readings: dict[str, Callable[[], Readings]] = {}
        self.histograms: dict[str, Histograms] = {}
        self.counters: dict[MetricId, Counter] = {}
        self.meters: dict[MetricId, Meter] = {}
        self.timers: dict[MetricId, Timer] = {}
        self._groups: dict[str, set[MetricId]] = {}

    def gauge(self, group: str, name: str, read: Gauge, form: GaugeForm | None = None) -> None:
        """Register a gauge, replacing one of the same name.

        Args:
            group: The group of the metric.
            name: The name within the group.
            read: Reads the value.
            form: The form in the text format of Prometheus; ``None`` for a number or a text.

        Raises:
            ValueError: The name belongs to a metric of another kind.
        """
        metric_id = self._free(group, name, self.gauges)
        self.gauges[metric_id] = read
        self.forms.pop(metric_id, None)
        if form is not None:
            self.forms[metric_id] = form

    def counter(self, group: str, name: str) -> Counter:
        """The counter of this name; created if it does not exist.

        Raises:
            ValueError: The name belongs to a metric of another kind.
        """
        return self.counters.setdefault(self._free(group, name, self.counters), Counter())

    def meter(self, group: str, name: str) -> Meter:
        """The meter of this name; created if it does not exist.

        Raises:
            ValueError: The name belongs to a metric of another kind.
        """
        return self.meters.setdefault(self._free(group, name, self.meters), Meter(self.clock))

    def timer(self, group: str, name: str) -> Timer:
        """The timer of this name; created if it does not exist.

        Raises:
            ValueError: The name belongs to a metric of another kind.
        """
        metric_id = self._free(group, name, self.timers)
        return self.timers.setdefault(metric_id, Timer(self.clock))

    def describe(self, descriptions: Iterable[Description]) -> None:
        """Describe metrics that are registered under the original's names."""
        self.descriptions.update({each.name: each for each in descriptions})

    def reading(self, description: Description, read: Callable[[], Readings]) -> None:
        """Register counters or gauges for Prometheus. The values are read one by one, with other work in between."""
        self.descriptions[description.name] = description
        self.readings[description.name] = read

    def histogram(self, description: Description, bounds: tuple[float, ...] = DURATION_BOUNDS_S) -> Histograms:
        """The histograms of this name, for Prometheus; created if they do not exist."""
        self.descriptions[description.name] = description
        return self.histograms.setdefault(description.name, Histograms(bounds))

    def remove_group(self, group: str) -> None:
        """Remove all metrics of a group, for example of a closed partition."""
        for metric_id in self._groups.pop(group, ()):
            for metrics in (*self._kinds(), self.forms):
                metrics.pop(metric_id, None)

    def _kinds(self) -> tuple[_Kind, ...]:
        return self.gauges, self.counters, self.meters, self.timers

    def _free(self, group: str, name: str, kind: object) -> MetricId:
        metric_id = MetricId(group, name)
        if any(metric_id in metrics for metrics in self._kinds() if metrics is not kind):
            raise ValueError(f"{metric_id.full_name} is already a metric of another kind")
        self._groups.setdefault(group, set()).add(metric_id)
        return metric_id
