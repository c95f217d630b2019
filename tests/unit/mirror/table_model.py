"""Clusters that write the same table, their mirrors, and what the rows have to be: a naive model."""

from collections.abc import Iterable
from typing import NamedTuple

from waltz.mirror.merging import Copy, Merged, Versions, batch_of, copy_of, next_group
from waltz.mirror.origins import PREFIX
from waltz.table.envelope import Batch, Envelope, Row, encode, envelope_of
from waltz.table.rows import TableRow, row_key, split_row_key, unpack_row
from waltz.table.stores.interface import Changes
from waltz.table.view import steps


class Write(NamedTuple):
    """A row that an application has written."""

    timestamp_ms: int
    transaction_id: int
    row: int
    cluster: str
    key: bytes
    value: bytes | None
    tombstone: bool


class Cluster:
    """One partition of a cluster: a table."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log: list[bytes] = []
        self.writes: dict[Write, frozenset[Write]] = {}
        """What applications have written, and what was in the log of this cluster before that."""
        self.copied: dict[str, list[int]] = {}
        """The transactions of other clusters that mirrors have appended, by cluster."""
        self.known: set[Write] = set()
        """All writes in the log, of whatever cluster."""
        self.locks: dict[str, int] = {}
        """The last transaction of each mirror, by its source."""

    def write(self, rows: Iterable[Row], written_at_ms: int) -> None:
        """An application writes a batch."""
        batch = Batch(written_at_ms, [*rows])
        for place, row in enumerate(batch.rows):
            timestamp_ms = written_at_ms if row.timestamp_ms is None else row.timestamp_ms
            key = row_key(row.prefix, row.key)
            write = Write(timestamp_ms, len(self.log), place, self.name, key, row.value, row.tombstone)
            self.writes[write] = frozenset(self.known)
            self.known.add(write)
        self.append(batch)

    def append(self, envelope: Envelope) -> int:
        """The next transaction."""
        self.log.append(encode(envelope))
        return len(self.log) - 1

    def rows(self) -> dict[bytes, TableRow]:
        """The rows that a view has, but those of mirrors: as all versions of views do."""
        packed: dict[bytes, bytes] = {}
        for step in steps(enumerate(self.log), -1):
            assert isinstance(step, Changes)
            for key, row in step.rows.items():
                packed[key] = max(packed.get(key, b""), row)
        found = {key: unpack_row(*split_row_key(key), row) for key, row in packed.items()}
        return {key: row for key, row in found.items() if row.prefix != PREFIX}


class Mirror:
    """What a mirror does, one step at a time."""

    def __init__(self, source: Cluster, target: Cluster, *, settles: bool = True) -> None:
        self._source = source
        self._target = target
        self._settles = settles
        self._merged = Merged(source.name, target.name)
        self._planned: tuple[int, Batch, list[Copy]] | None = None

    def crash(self) -> None:
        """Forget all but what the target has."""
        self._merged = Merged(self._source.name, self._target.name)
        self._planned = None

    def plan(self, most: int) -> bool:
        """Look at the target, and decide what to append, at most so many transactions; whether that is something."""
        merged, target = self._merged, self._target
        for transaction_id in range(merged.applied + 1, len(target.log)):
            merged.apply(transaction_id, envelope_of(transaction_id, target.log[transaction_id]))
        self._planned = None
        if merged.unsettled and self._settles:
            place, keys = merged.next_unsettled()
            written = envelope_of(place, target.log[place])
            assert isinstance(written, Batch)
            self._planned = merged.applied, merged.settling_batch(keys, written, len(target.log)), []
            return True
        behind = range(merged.position + 1, len(self._source.log))
        versions = Versions(merged.position_version)
        found = [copy_of(each, 0, envelope_of(each, self._source.log[each]), versions) for each in behind]
        group = next_group([copy for copy in found if copy is not None][:most])
        if group:
            self._planned = merged.applied, batch_of(self._source.name, group, len(target.log)), group
        return bool(group)

    def append(self) -> None:
        """Append what is planned, unless another mirror of the same source has appended since."""
        if self._planned is not None:
            applied, batch, group = self._planned
            if self._target.locks.get(self._source.name, -1) <= applied:
                self._target.locks[self._source.name] = self._target.append(batch)
                copied = [copy.transaction_id for copy in group]
                self._target.copied.setdefault(self._source.name, []).extend(copied)
                self._target.known |= {each for each in self._source.writes if each.transaction_id in copied}
        self._planned = None

    def step(self, most: int) -> bool:
        """Plan and append; whether something was."""
        found = self.plan(most)
        self.append()
        return found


def mirrors_of(clusters: Iterable[Cluster], *, settles: bool = True) -> list[Mirror]:
    """A mirror from each cluster to each other one."""
    everyone = [*clusters]
    return [
        Mirror(source, target, settles=settles) for target in everyone for source in everyone if source is not target
    ]


def settle(mirrors: Iterable[Mirror], most_steps: int = 1000) -> None:
    """Let mirrors work until nothing is left; that has to end."""
    everyone = [*mirrors]
    for _ in range(most_steps):
        found = [mirror.step(100) for mirror in everyone]
        if not any(found):
            return
    raise AssertionError(f"mirrors go on after {most_steps} steps")


def differences(clusters: Iterable[Cluster]) -> list[str]:
    """Where rows are not those that may win, or not equal in all clusters.

    Of the writes of a key with the greatest timestamp one wins that was in no log before another one of them.
    """
    everyone = [*clusters]
    pasts = {write: past for cluster in everyone for write, past in cluster.writes.items()}
    by_key: dict[bytes, list[Write]] = {}
    for write in pasts:
        by_key.setdefault(write.key, []).append(write)
    found: list[str] = []
    rows = [cluster.rows() for cluster in everyone]
    for key, writes in by_key.items():
        newest = max(write.timestamp_ms for write in writes)
        tied = [write for write in writes if write.timestamp_ms == newest]
        allowed = [write for write in tied if not any(write in pasts[other] for other in tied)]
        states = [(row.timestamp_ms, row.value, row.tombstone) if (row := each.get(key)) else None for each in rows]
        if len(set(states)) != 1:
            found.append(f"the clusters have {states} of {key!r}")
        elif states[0] not in [(write.timestamp_ms, write.value, write.tombstone) for write in allowed]:
            found.append(f"all have {states[0]} of {key!r}, and not one of {allowed}")
    if any(each.keys() != by_key.keys() for each in rows):
        found.append("the clusters have other keys than were written")
    return found
