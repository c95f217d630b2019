"""From counts at both ends of a window to costs per transaction and per batch. Pure."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import NamedTuple

from benchmarks.cluster.summary import RATE, Metrics


class Usage(NamedTuple):
    """What a process has used so far."""

    cpu_s: float
    switches: int
    """Context switches of its threads, voluntary or not."""
    resident_mib: float


class Edge(NamedTuple):
    """What is counted at the beginning and at the end of a window, by process."""

    at_s: float
    used: Mapping[str, Usage]


class Progress(NamedTuple):
    """How far storages and log have come. Asking for it costs them something, so it is done outside of the window."""

    at_s: float
    batches: float
    """Batches that were made durable, as a mean of the storages."""
    positions: tuple[int, ...]
    """Records that each storage holds."""


def costs(before: Edge, after: Edge, transactions: int) -> Metrics:
    """Rate, and what each kind of process used; of several processes of a kind, such as storages, the mean."""
    elapsed_s = after.at_s - before.at_s
    metrics: Metrics = {RATE: transactions / elapsed_s}
    for role, names in roles(list(after.used)).items():
        cpu_s = mean(after.used[name].cpu_s - before.used[name].cpu_s for name in names)
        switches = mean(after.used[name].switches - before.used[name].switches for name in names)
        if transactions:
            metrics[f"cpu_us.{role}"] = cpu_s / transactions * 1e6
        metrics[f"cpu_percent.{role}"] = cpu_s / elapsed_s * 100
        metrics[f"switches_per_s.{role}"] = switches / elapsed_s
        metrics[f"resident_mib.{role}"] = mean(after.used[name].resident_mib for name in names)
        metrics[f"growth_mib.{role}"] = mean(
            after.used[name].resident_mib - before.used[name].resident_mib for name in names
        )
    return metrics


def batch_costs(before: Progress, after: Progress, metrics: Metrics) -> Metrics:
    """Batches per second, and per batch the transactions and context switches of ``metrics``.

    The progress was read a little before and after the window, so rates are related, not counts.
    """
    batches_per_s = (after.batches - before.batches) / (after.at_s - before.at_s)
    if not batches_per_s:
        return {}
    per_batch = {
        name.replace("_per_s.", "_per_batch."): value / batches_per_s
        for name, value in metrics.items()
        if name.startswith("switches_per_s.")
    }
    return {"batches_per_s": batches_per_s, "transactions_per_batch": metrics[RATE] / batches_per_s, **per_batch}


def call_costs(before: Progress, after: Progress, counts: Mapping[str, Mapping[str, int]]) -> Metrics:
    """System calls per batch of each kind of process, all together and by name."""
    batches = after.batches - before.batches
    metrics: Metrics = {}
    if batches:
        for role, names in roles(list(counts)).items():
            metrics[f"calls_per_batch.{role}"] = mean(sum(counts[name].values()) for name in names) / batches
            for call in sorted({call for name in names for call in counts[name]}):
                metrics[f"call_per_batch.{role}.{call}"] = mean(counts[name].get(call, 0) for name in names) / batches
    return metrics


def roles(names: Sequence[str]) -> dict[str, list[str]]:
    """Processes of the same kind together: ``storage`` for ``storage-1``, ``storage-2``, ..."""
    together: dict[str, list[str]] = {}
    for name in names:
        together.setdefault(name.partition("-")[0], []).append(name)
    return together
