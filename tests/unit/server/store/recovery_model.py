"""Executes the effects of the recovery machine on storages in memory, one at a time in random order."""

import random
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from tests.unit.server.store.fakes import TRIMMED, FakePartition
from waltz.common.records import Record
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState
from waltz.server.store.recovery.recovery import RecoveryMachine, Step
from waltz.server.store.recovery.recovery_effects import (
    Abort,
    Compare,
    Copy,
    Effect,
    GetMaximum,
    Join,
    Open,
    Refuse,
    Renew,
    SetLowWaterMark,
    Truncate,
    WriteMetadata,
)

U = UNRESOLVED


class Stored(NamedTuple):
    """State of one storage: persisted session and low-water mark, highest id, and from where on records are dirty."""

    session_id: int
    low_water_mark: int
    maximum: int
    dirty_from: int = 1 << 30


def replica(name: str) -> ReplicaId:
    return ReplicaId(0, name)


def record(transaction_id: int, origin: str = "good") -> Record:
    return Record(transaction_id, f"{origin:>10.10}{transaction_id:6d}".encode(), 0, b"", 0)


def partition_of(stored: Stored) -> FakePartition:
    records = [record(i, "dirty" if i >= stored.dirty_from else "good") for i in range(stored.maximum + 1)]
    local_mark = min(stored.low_water_mark, stored.maximum)
    return FakePartition(stored.session_id, stored.low_water_mark, local_mark, stored.session_id, records)


class Model:
    """Storages, metadata, and one machine at a time."""

    def __init__(
        self,
        states: dict[str, tuple[int, int]],
        storages: dict[str, Stored],
        *,
        session_id: int = 999,
        generation: int = 10,
        seed: int = 0,
        trim_point: int = 0,
    ) -> None:
        self.random = random.Random(seed)
        self.trim_point = trim_point
        self.begun: list[str] = []
        self.storages = {name: partition_of(stored) for name, stored in storages.items()}
        entries = {replica(name): ReplicaState(replica(name), *state) for name, state in states.items()}
        self.metadata = PartitionMetadata(generation, session_id - 1, entries)
        self.version = 7
        self.machine: RecoveryMachine | None = None
        self.opened: int | None = None
        self.joined: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.aborted: Abort | None = None
        self.connected: set[str] = set()
        self.fail_writes = 0
        self.write_count = 0
        self._pending: list[Effect] = []

    def begin(self, assigned: Iterable[str], floor: int = -1) -> RecoveryMachine:
        """A new session: forget the old machine, take the next session id. A new owner has no floor."""
        self.metadata = self.metadata._replace(session_id=self.metadata.session_id + 1)
        self.version += 1
        self.machine = RecoveryMachine(self.metadata, self.version, map(replica, assigned), floor)
        self.opened = self.aborted = None
        self.joined, self.refused = {}, {}
        self.connected = set()
        self._pending = []
        return self.machine

    @property
    def session_id(self) -> int:
        return self.metadata.session_id

    @property
    def pending(self) -> list[Effect]:
        """Effects that are not carried out yet."""
        return list(self._pending)

    def connect(self, name: str, acknowledged: int = -1) -> None:
        partition = self.storages[name]
        partition.fence = max(partition.fence, self.session_id)
        partition.check(self.session_id)
        assert self.machine is not None
        self.connected.add(name)
        self._take(
            self.machine.replica_connected(replica(name), partition.session_id, partition.low_water_mark, acknowledged)
        )

    def lose(self, name: str) -> None:
        """Break the connection; a change that was under way has been done or not, and bars the replica."""
        assert self.machine is not None
        self.connected.discard(name)
        self.joined.pop(name, None)
        unanswered = [effect for effect in self._pending if self._target(effect) == name]
        self._pending = [effect for effect in self._pending if effect not in unanswered]
        in_doubt = [
            effect
            for effect in unanswered
            if isinstance(effect, Truncate | SetLowWaterMark | Copy) or self._begin_of(effect) is not None
        ]
        for effect in in_doubt:
            if self.random.random() < 0.5:
                begin = self._begin_of(effect)
                if begin is None:
                    self._apply(effect)
                else:
                    self.storages[name].begin(begin)
        self._take(self.machine.replica_lost(replica(name), change_unanswered=bool(in_doubt)))

    @property
    def idle(self) -> bool:
        return not self._pending

    def step(self) -> None:
        """Carry out one of the outstanding effects."""
        effect = self._pending.pop(self.random.randrange(len(self._pending)))
        if isinstance(effect, WriteMetadata):
            self._write(effect)
        else:
            self._answer(effect)

    def run(self, names: Collection[str], max_steps: int = 10_000) -> None:
        """Connect the storages at random moments and carry on until nothing is left to do."""
        waiting = sorted(set(names) - self.connected)
        self.random.shuffle(waiting)
        for _ in range(max_steps):
            if waiting and (self.idle or self.random.random() < 0.2):
                self.connect(waiting.pop())
            elif self.idle:
                return
            else:
                self.step()
        raise AssertionError("the recovery does not come to rest")

    def steps(self) -> dict[str, Step]:
        assert self.machine is not None
        return {key.connect_string: self.machine.step(key) for key in self.machine.members}

    # Internals

    def _take(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            match effect:
                case Open(high_water_mark=mark):
                    assert self.opened is None
                    self.opened = mark
                case Join(replica_id=key, position=position):
                    state = self.metadata.replicas[key]
                    assert state == ReplicaState(key, self.session_id, U), "joined before the metadata said so"
                    self.joined[key.connect_string] = position
                case Refuse(replica_id=key, reason=reason):
                    self.refused[key.connect_string] = reason
                    self.connected.discard(key.connect_string)
                case Abort():
                    self.aborted = effect
                case _:
                    name = self._target(effect)
                    assert name is None or name in self.connected
                    assert name not in [self._target(other) for other in self._pending], "two effects at once"
                    self._pending.append(effect)

    @staticmethod
    def _target(effect: Effect) -> str | None:
        if isinstance(effect, WriteMetadata | Open | Abort | Renew):
            return None
        return effect.replica_id.connect_string

    def _begin_of(self, effect: Effect) -> int | None:
        """The transaction with which a replica begins anew instead of this effect."""
        if not isinstance(effect, Copy | Compare):
            return None
        assert self.machine is not None
        compared = isinstance(effect, Compare)
        return self.machine.begin_of(effect.replica_id, effect.source, self.trim_point, compared=compared)

    def _apply(self, effect: Effect) -> int:
        match effect:
            case Truncate(replica_id=key, transaction_id=transaction_id):
                return self.storages[key.connect_string].truncate(transaction_id)
            case SetLowWaterMark(replica_id=key, low_water_mark=mark):
                self.storages[key.connect_string].set_low_water_mark(self.session_id, mark)
                return mark
            case Copy(replica_id=key, source=source, first=first, last=last):
                count = self.random.randint(1, min(20, last - first + 1))
                records = self.storages[source.connect_string].records[first : first + count]
                if TRIMMED in records:
                    return -1
                self.storages[key.connect_string].append(records)
                return self.storages[key.connect_string].maximum if records else -1
            case _:
                raise AssertionError(effect)

    def _answer(self, effect: Effect) -> None:
        machine = self.machine
        assert machine is not None
        begin = self._begin_of(effect)
        if begin is not None:
            name = self._target(effect)
            assert name is not None
            self.storages[name].begin(begin)
            self.begun.append(name)
            self._take(machine.begun(replica(name), begin - 1))
            return
        match effect:
            case GetMaximum(replica_id=key):
                self._take(machine.maximum_known(key, self.storages[key.connect_string].maximum))
            case Truncate(replica_id=key):
                self._take(machine.maximum_known(key, self._apply(effect)))
            case SetLowWaterMark(replica_id=key):
                self._apply(effect)
                self._take(machine.low_water_mark_set(key))
            case Compare(replica_id=key, source=source, transaction_id=transaction_id):
                if source.connect_string not in self.connected or self.random.random() < 0.1:
                    self._take(machine.comparison_failed(key, source))
                else:
                    own, other = (self.storages[each.connect_string].records[transaction_id] for each in (key, source))
                    if TRIMMED in (own, other):
                        assert transaction_id < self.trim_point
                        self._take(machine.comparison_failed(key, source))
                        return
                    self._take(machine.compared(key, source, transaction_id, same=own == other))
            case Copy(replica_id=key, source=source):
                if source.connect_string not in self.connected or self._apply(effect) < 0:
                    self._take(machine.copy_failed(key, source))
                else:
                    self._take(machine.copied(key, self.storages[key.connect_string].maximum))
            case _:
                raise AssertionError(effect)

    def _write(self, effect: WriteMetadata) -> None:
        assert self.machine is not None
        self.write_count += 1
        if self.fail_writes:
            self.fail_writes -= 1
            if self.random.random() < 0.5 and effect.version == self.version:
                self.metadata, self.version = effect.metadata, self.version + 1
            self._take(self.machine.metadata_read(self.metadata, self.version))
            return
        assert effect.version == self.version
        self.metadata, self.version = effect.metadata, self.version + 1
        self._take(self.machine.metadata_written(self.version))
