"""Recovery of a partition at the start of a store session, as a state machine: events in, effects out. Pure.

The machine brings the replicas to one common high-water mark, which covers every commit, and lets later replicas join.
The rules are:

* Before a change on a storage, a compare-and-set of the metadata has to succeed *after* the storage has answered the
  session's first request on the present connection. So a superseded session cannot change a storage that has forgotten
  the fence of the newer session in a restart (rule S2).
* A lost replica is dropped with its mark, and counts as absent until it has joined again from the beginning. If the
  outcome of a change on it is unknown, the replica is barred: the delayed change could still take effect, and only the
  fence of another session prevents that.
* If a mark depends on a copy that the next recovery would cut off, the mark is recorded before any storage gets it as
  low-water mark (rule S7).
* The session opens after the write of metadata with a quorum of recovered replicas (hazard H4). A replica votes only if
  it is a member according to the metadata.
* No mark is decided below the *floor*, the mark that this owner has reported as committed (rule S10): the machine
  waits.
* A member that returns with fewer records than it has acknowledged is recorded as closed at its present mark, and left
  to the next session. A state that is closed, beside members of the same session, is no evidence of possible commits.
* A storage with records, but without a session in the metadata, is compared with another replica before use. It may
  have been given up together with a lost part of the log, and have returned after other transactions got its ids (S9).
* If a replica has never been part of a session, records above its own low-water mark are never trusted (hazard H3). A
  storage with records that are unknown to the metadata is refused, not truncated (H5).

The caller executes effects in the given order. At any time there is at most one unfinished effect for each replica, and
one unfinished write of the metadata. The result of each effect is reported by the event in the documentation of the
effect, or by :meth:`RecoveryMachine.replica_lost`.
"""

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from waltz.common.cluster.quorum import Evidence, decide_high_water_mark, quorum_of
from waltz.common.ids import NO_TRANSACTION
from waltz.common.zk.znodes import UNRESOLVED, PartitionMetadata, ReplicaId, ReplicaState
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
from waltz.server.store.recovery.replica_states import NO_SESSION, is_clean, states_after_recovery

STUCK_AFTER_COPIES = 3
"""The number of consecutive failed copies after which a replica counts as without progress."""


class Step(enum.Enum):
    """Steps of a replica on its way into the session."""

    ABSENT = "absent"
    VERIFYING = "verifying"
    """Connected. Waits for the proof by the metadata that the session was still the newest after the connection."""
    INSPECTING = "inspecting"
    """The truncation to the trusted part, or the question for the maximum, is under way."""
    PINNING = "pinning"
    """This session is being persisted at a storage without a session. The low-water mark stays."""
    KNOWN = "known"
    """The mark is known, and no request is under way."""
    COMPARING = "comparing"
    """The check whether the records belong to this log is under way."""
    COPYING = "copying"
    ALIGNING = "aligning"
    """The truncation to the decided mark is under way."""
    MARKING = "marking"
    """The decided mark is being set as the low-water mark."""
    RECOVERED = "recovered"
    """Complete; waits for the write of the metadata."""
    JOINED = "joined"
    REFUSED = "refused"


@dataclass(slots=True)
class _Replica:
    """The machine's knowledge about one replica. All fields but the first four concern the present connection."""

    replica_id: ReplicaId
    assigned: bool
    barred: bool = False
    connections: int = 0
    step: Step = Step.ABSENT
    session_id: int = NO_SESSION
    low_water_mark: int = NO_TRANSACTION
    verify_after: int = 0
    mark: int | None = None
    counted: bool = False
    intact: bool = False
    votes: bool = False
    may_vote: bool = False
    must_be_empty: bool = False
    acknowledged: int = NO_TRANSACTION
    """The highest id up to which all records are known to have been durable at the replica."""
    lost: bool = False
    """Whether the replica has fewer records than it has acknowledged, or once had according to the metadata."""
    proved: bool = True
    """Whether the records are known to belong to this log."""
    pin: bool = False
    pinned_mark: int = NO_TRANSACTION
    aligned: bool = False
    marked: bool = False
    failed_reads: int = 0
    failed_copies: int = 0
    """The number of failed copies to the replica, or failed comparisons, since the last success."""

    @property
    def stuck(self) -> bool:
        """Whether the replica is the target of copies without success (rule L2)."""
        return self.failed_copies >= STUCK_AFTER_COPIES

    def reset(self) -> None:
        """Drop all knowledge from the present connection."""
        fresh = _Replica(self.replica_id, self.assigned, self.barred, self.connections)
        for name in _Replica.__slots__:
            setattr(self, name, getattr(fresh, name))


class RecoveryMachine:
    """Events in, effects out. ``metadata`` and the znode ``version`` are those of the write that began the session."""

    def __init__(
        self,
        metadata: PartitionMetadata,
        version: int,
        assigned: Iterable[ReplicaId],
        floor: int = NO_TRANSACTION,
    ) -> None:
        """``floor`` is the highest id that the owner of the session has reported as committed."""
        self._metadata = metadata
        self._version = version
        self._session_id = metadata.session_id
        self._assigned = frozenset(assigned)
        self._previous = frozenset(metadata.replicas)
        self._quorum = quorum_of(len(self._assigned))
        self._replicas = {
            replica_id: _Replica(replica_id, replica_id in self._assigned)
            for replica_id in sorted(self._assigned | self._previous)
        }
        self._first_session = not self._previous
        self._floor = floor
        self._decided: int | None = NO_TRANSACTION if self._first_session and floor == NO_TRANSACTION else None
        self._below_floor: int | None = NO_TRANSACTION if self._first_session and self._decided is None else None
        self._records: dict[ReplicaId, ReplicaState] = {}
        self._closings: dict[ReplicaId, ReplicaState] = {}
        """The states to be written of replicas with fewer records than they have acknowledged."""
        self._opened = False
        self._aborted = False
        self._writes = 0
        self._write_in_flight: PartitionMetadata | None = None
        self._effects: list[Effect] = []

    @property
    def members(self) -> list[ReplicaId]:
        """All relevant replicas: the assigned ones, and the ones removed since the last session, which are still
        witnesses of its commits."""
        return list(self._replicas)

    @property
    def high_water_mark(self) -> int | None:
        """The mark with which the session starts; ``None`` while it is undecided or not yet recorded (S7)."""
        return None if self._records else self._decided

    @property
    def below_floor(self) -> int | None:
        """The mark that the replicas with answers prove, while it is below the mark reported as committed."""
        return self._below_floor

    @property
    def opened(self) -> bool:
        """Whether the effect :class:`Open` was given."""
        return self._opened

    @property
    def copying(self) -> bool:
        """Whether a replica is being brought up to date. An early end of the recovery would lose its progress.

        A replica with copies that always fail does not count.
        """
        return any(replica.step is Step.COPYING and not replica.stuck for replica in self._replicas.values())

    @property
    def joining(self) -> bool:
        """Whether a replica is joining. An end of the session would lose its progress."""
        settled = (Step.ABSENT, Step.REFUSED, Step.JOINED)
        return any(replica.step not in settled and not replica.stuck for replica in self._replicas.values())

    def begin_of(self, replica_id: ReplicaId, source: ReplicaId, trim_point: int, *, compared: bool) -> int | None:
        """The first transaction with which a replica has to begin anew, instead of a :class:`Copy` from the source, or
        a :class:`Compare` with the source (``compared``); ``None``: the effect can be carried out.

        The source of a copy may not have what is trimmed. Doubtful records are not kept if all of them are trimmed.
        Everything before the begin is certainly committed: by the decision of the session, or according to the
        low-water mark at the source.
        """
        replica, other, decided = self._replicas[replica_id], self._replicas[source], self.high_water_mark
        if replica.mark is None or other.mark is None:
            return None
        certain = other.low_water_mark if other.proved else NO_TRANSACTION
        if decided is not None:
            certain = max(certain, decided)
        begin = min(trim_point, certain + 1, other.mark + 1)
        lacking = begin > replica.mark + 1 or (compared and begin == replica.mark + 1)
        return begin if lacking and begin > 0 else None

    def connections_of(self, replica_id: ReplicaId) -> int:
        """The number of connections of the replica so far: reads over an earlier connection prove nothing about a later
        one."""
        return self._replicas[replica_id].connections

    def step(self, replica_id: ReplicaId) -> Step:
        """The step of a replica."""
        return self._replicas[replica_id].step

    def is_barred(self, replica_id: ReplicaId) -> bool:
        """Whether the replica must not be connected again in this session."""
        return self._replicas[replica_id].barred

    def mark(self, replica_id: ReplicaId) -> int | None:
        """The id up to which a connected replica has the log; ``None`` while unknown."""
        return self._replicas[replica_id].mark

    def describe(self) -> str:
        """One line for operators with the step of every replica."""
        parts = (
            f"{replica.replica_id.connect_string} {'barred' if replica.barred else replica.step.value}"
            + ("" if replica.mark is None else f" at {replica.mark}")
            for replica in self._replicas.values()
        )
        undecided = "undecided" if self._below_floor is None else f"not to be decided below {self._floor}"
        return f"high-water mark {undecided if self._decided is None else self._decided}; " + ", ".join(parts)

    # Events

    def replica_connected(
        self, replica_id: ReplicaId, session_id: int, low_water_mark: int, acknowledged: int = NO_TRANSACTION
    ) -> list[Effect]:
        """The storage answered the session's last-session-info request with its persisted state.

        The storage has reported before that all records up to ``acknowledged`` are durable.
        """
        replica = self._replicas[replica_id]
        if replica.barred:
            raise ValueError(f"{replica_id} is barred from session {self._session_id}")
        replica.reset()
        replica.connections += 1
        replica.step = Step.VERIFYING
        replica.session_id = session_id
        replica.low_water_mark = low_water_mark
        replica.acknowledged = acknowledged
        replica.verify_after = self._writes
        return self._progress()

    def replica_lost(self, replica_id: ReplicaId, *, change_unanswered: bool) -> list[Effect]:
        """The connection or a request has failed. ``change_unanswered``: a truncation, low-water mark or copy was sent,
        and the storage may have executed it or may execute it later."""
        replica = self._replicas[replica_id]
        replica.reset()
        replica.barred = replica.barred or change_unanswered
        return self._progress()

    def maximum_known(self, replica_id: ReplicaId, transaction_id: int) -> list[Effect]:
        """Answer to :class:`GetMaximum` and :class:`Truncate`."""
        replica = self._replicas[replica_id]
        if replica.step is Step.INSPECTING:
            self._inspected(replica, transaction_id)
        elif replica.step is Step.ALIGNING:
            replica.mark = transaction_id
            replica.aligned = True
            replica.step = Step.KNOWN
            if self._decided is None or transaction_id > self._decided:
                self._refuse(replica, f"was told to truncate to {self._decided}, but says {transaction_id}")
        else:
            raise ValueError(f"{replica_id}: unexpected maximum in step {replica.step}")
        return self._progress()

    def low_water_mark_set(self, replica_id: ReplicaId) -> list[Effect]:
        """Answer to :class:`SetLowWaterMark`."""
        replica = self._replicas[replica_id]
        if replica.step is Step.PINNING:
            replica.session_id = self._session_id
            replica.mark = replica.pinned_mark
        elif replica.step is Step.MARKING:
            replica.marked = True
        else:
            raise ValueError(f"{replica_id}: unexpected low-water mark in step {replica.step}")
        replica.step = Step.KNOWN
        return self._progress()

    def compared(self, replica_id: ReplicaId, source: ReplicaId, transaction_id: int, *, same: bool) -> list[Effect]:
        """Answer to :class:`Compare`: whether both replicas have the same transaction."""
        replica = self._replicas[replica_id]
        assert replica.step is Step.COMPARING
        replica.step = Step.KNOWN
        replica.proved = same
        replica.failed_copies = 0
        if not same:
            self._refuse(
                replica,
                f"holds another transaction {transaction_id} than {source.connect_string}: it was given up with a part"
                " of the log, or comes from another cluster or backup; delete the partition's files at the storage",
            )
        return self._progress()

    def comparison_failed(self, replica_id: ReplicaId, source: ReplicaId) -> list[Effect]:
        """Answer to :class:`Compare`: the source could not be read."""
        replica = self._replicas[replica_id]
        assert replica.step is Step.COMPARING
        replica.step = Step.KNOWN
        replica.failed_copies += 1
        self._replicas[source].failed_reads += 1
        return self._progress()

    def copied(self, replica_id: ReplicaId, last: int) -> list[Effect]:
        """Answer to :class:`Copy`: the records up to ``last`` are durable at the replica."""
        replica = self._replicas[replica_id]
        assert replica.step is Step.COPYING
        assert replica.mark is not None
        assert last > replica.mark
        replica.mark = last
        replica.failed_copies = 0
        replica.step = Step.KNOWN
        return self._progress()

    def begun(self, replica_id: ReplicaId, last: int) -> list[Effect]:
        """Answer to :class:`Copy` and :class:`Compare`: the replica has begun anew behind ``last`` instead, without
        records. Everything up to there is committed and trimmed, so the replica counts as one that has it."""
        replica = self._replicas[replica_id]
        assert replica.step in (Step.COPYING, Step.COMPARING)
        assert replica.mark is not None
        assert last >= replica.mark
        replica.mark = last
        replica.proved = True
        replica.failed_copies = 0
        replica.step = Step.KNOWN
        return self._progress()

    def copy_failed(self, replica_id: ReplicaId, source: ReplicaId) -> list[Effect]:
        """Answer to :class:`Copy`: the source could not be read; nothing was sent to the target."""
        replica = self._replicas[replica_id]
        assert replica.step is Step.COPYING
        replica.step = Step.KNOWN
        replica.failed_copies += 1
        first_wanted = NO_TRANSACTION if replica.mark is None else replica.mark + 1
        # The source was cut to the decided mark meanwhile: the loss of later records is right.
        if self._decided is None or first_wanted <= self._decided:
            self._replicas[source].failed_reads += 1
        return self._progress()

    def metadata_written(self, version: int) -> list[Effect]:
        """The compare-and-set has succeeded; ``version`` is the new version of the znode."""
        written = self._write_in_flight
        assert written is not None
        self._write_in_flight = None
        self._metadata, self._version = written, version
        if self._records and all(written.replicas.get(key) == state for key, state in self._records.items()):
            self._records = {}
        self._closings = {
            key: state for key, state in self._closings.items() if written.replicas.get(key) not in (None, state)
        }
        for replica in self._replicas.values():
            if replica.step is Step.RECOVERED and is_clean(written.replicas.get(replica.replica_id), self._session_id):
                self._join(replica)
            elif replica.step is Step.VERIFYING and replica.verify_after < self._writes:
                self._inspect(replica)
        if self._decided is not None and self._opened_by(written):
            self._opened = True
            self._effects.append(Open(self._decided))
            for replica in self._replicas.values():
                if not replica.assigned:
                    replica.reset()  # it was a witness of the previous session, and its evidence has been used
        return self._progress()

    def metadata_read(self, metadata: PartitionMetadata, version: int) -> list[Effect]:
        """A write has failed, or its outcome is unknown. The arguments are the present content of the znode."""
        self._write_in_flight = None
        if metadata.session_id != self._session_id:
            if self._opened and metadata.generation == self._metadata.generation:
                # The owner itself has taken the next number, by a write that it had given up. The members can continue:
                # if another server used that number, their storages would report that. No other replica can join.
                self._aborted = True
                return [Renew()]
            self._abort(f"session {metadata.session_id} has superseded session {self._session_id}", superseded=True)
        self._metadata, self._version = metadata, version
        return self._progress()

    # The next step of a replica

    def _inspect(self, replica: _Replica) -> None:
        """Determine the trusted part of the replica by its state in the metadata."""
        state = self._metadata.replicas.get(replica.replica_id)
        if is_clean(state, self._session_id):
            self._inspect_returning(replica)
            return
        refused = self._reason_to_refuse(replica)
        if refused:
            self._refuse(replica, refused)
            return
        replica.counted = replica.replica_id in self._previous
        replica.intact = state is not None and replica.session_id >= state.session_id
        replica.lost = state is not None and self._is_closed_within_its_session(state)
        replica.proved = state is not None and state.session_id != NO_SESSION
        replica.step = Step.INSPECTING
        own_mark = replica.low_water_mark
        if self._first_session and (state is None or state.session_id == NO_SESSION):
            replica.must_be_empty = True
            self._effects.append(GetMaximum(replica.replica_id))
        elif state is None or not replica.intact:
            self._effects.append(Truncate(replica.replica_id, own_mark))
        elif state.session_id == NO_SESSION:
            # The records of a storage without a session were copied by an operator, up to a mark that was certain at
            # the source, perhaps after the state was written.
            replica.pin = replica.session_id == NO_SESSION
            closing = state.closing_high_water_mark
            trusted = own_mark if replica.pin or closing == UNRESOLVED else min(own_mark, closing)
            self._effects.append(Truncate(replica.replica_id, trusted))
        elif state.closing_high_water_mark != UNRESOLVED:
            self._effects.append(Truncate(replica.replica_id, state.closing_high_water_mark))
        else:
            replica.may_vote = True
            self._effects.append(GetMaximum(replica.replica_id))

    def _inspect_returning(self, replica: _Replica) -> None:
        """Inspect a member that returns. Its records are the log of this session, and none may be cut off, because its
        acknowledgements have been counted."""
        if replica.session_id != self._session_id:
            self._abort(f"storage {replica.replica_id.connect_string} has forgotten this session", superseded=False)
            return
        replica.counted = replica.replica_id in self._previous
        replica.intact = True
        replica.aligned = replica.marked = True
        replica.step = Step.INSPECTING
        self._effects.append(GetMaximum(replica.replica_id))

    def _reason_to_refuse(self, replica: _Replica) -> str | None:
        mark = self.high_water_mark
        if mark is not None and replica.low_water_mark > mark:
            return (
                f"has low-water mark {replica.low_water_mark}, above the partition's high-water mark {mark}:"
                " it may hold committed transactions that the metadata in ZooKeeper have lost"
            )
        return None

    def _inspected(self, replica: _Replica, maximum: int) -> None:
        if replica.must_be_empty and maximum > NO_TRANSACTION:
            self._refuse(
                replica,
                f"holds transactions up to {maximum} of a partition that is new according to ZooKeeper;"
                " restore its metadata, or delete the partition's files at the storage",
            )
            return
        if replica.pin:
            # Without a persisted session the copy could not be recorded (S7): the next recovery would cut it off.
            replica.pin = False
            replica.pinned_mark = maximum
            replica.step = Step.PINNING
            # A log that cannot be cut to the mark begins behind it (:meth:`begun`): everything before is committed.
            self._effects.append(SetLowWaterMark(replica.replica_id, max(replica.low_water_mark, maximum)))
            return
        if (replica.may_vote or replica.aligned) and maximum < replica.acknowledged:
            self._close(replica, maximum)
            return
        replica.mark = maximum
        replica.votes = replica.may_vote and maximum >= replica.low_water_mark
        replica.step = Step.KNOWN

    def _close(self, replica: _Replica, maximum: int) -> None:
        """Close a member with fewer records than it has acknowledged.

        Its records are the log of its session, and it may get the missing records in the next session. But a decision
        about commits must not treat it as a replica that has never had more records.
        """
        replica_id, acknowledged = replica.replica_id, replica.acknowledged
        state = self._metadata.replicas[replica_id]
        trusted = max(maximum, replica.low_water_mark)
        self._closings[replica_id] = state._replace(closing_high_water_mark=trusted)
        replica.barred = True
        self._refuse(
            replica,
            f"holds transactions up to {maximum} and has acknowledged {acknowledged} in session {state.session_id}:"
            " its disk is an older one, or has lost what was synced; it has no vote until it is brought up to date",
        )

    def _is_closed_within_its_session(self, state: ReplicaState) -> bool:
        """Whether the session of a closed state still has members. Otherwise a later session has closed the state."""
        return state.closing_high_water_mark != UNRESOLVED and any(
            other.is_member_of(state.session_id) for other in self._metadata.replicas.values()
        )

    def _refuse(self, replica: _Replica, reason: str) -> None:
        replica.reset()
        replica.step = Step.REFUSED
        self._effects.append(Refuse(replica.replica_id, reason))

    def _join(self, replica: _Replica) -> None:
        assert replica.mark is not None
        replica.step = Step.JOINED
        self._effects.append(Join(replica.replica_id, replica.mark))

    def _abort(self, reason: str, *, superseded: bool) -> None:
        if not self._aborted:
            self._aborted = True
            self._effects.append(Abort(reason, superseded))

    # Progress of all

    def _progress(self) -> list[Effect]:
        if not self._aborted:
            for replica in self._replicas.values():
                if replica.step is Step.KNOWN and not replica.proved:
                    self._compare(replica)
            if self._decided is None:
                self._decide()
            for replica in self._replicas.values():
                if replica.step is Step.KNOWN:
                    self._advance(replica)
            self._write()
        effects, self._effects = self._effects, []
        return effects

    def _decide(self) -> None:
        if self._first_session:
            return  # the owner has committed in sessions that are missing in these metadata
        if any(each.step is Step.COMPARING and not each.failed_copies for each in self._replicas.values()):
            return  # another log must not be recorded as a copy of this one
        counted = [replica for replica in self._replicas.values() if replica.counted]
        evidence = [Evidence(r.mark, r.votes, r.intact and not r.lost) for r in counted if r.mark is not None]
        mark = decide_high_water_mark(evidence, len(self._previous))
        self._below_floor = mark if mark is not None and mark < self._floor else None
        if mark is not None and mark >= self._floor:
            self._decided = mark
            self._records = self._records_for(mark, [r for r in counted if r.mark is not None and r.mark >= mark])

    def _records_for(self, mark: int, support: list[_Replica]) -> dict[ReplicaId, ReplicaState]:
        """Rule S7: the states to be written before a use of ``mark``, if there are too few lasting copies.

        A storage with an older state than the metadata is left out: its copy is no evidence, now or later.
        """
        lasting = 0
        records: dict[ReplicaId, ReplicaState] = {}
        for replica in support:
            state = self._metadata.replicas[replica.replica_id]
            if not replica.intact:
                continue
            if state.closing_high_water_mark == UNRESOLVED or (
                state.session_id != NO_SESSION and state.closing_high_water_mark >= mark
            ):
                lasting += 1
            else:
                session_id = replica.session_id if state.session_id == NO_SESSION else state.session_id
                records[replica.replica_id] = ReplicaState(replica.replica_id, session_id, mark)
        return {} if lasting >= quorum_of(len(self._previous)) else records

    def _advance(self, replica: _Replica) -> None:
        assert replica.mark is not None
        target = self.high_water_mark
        if target is None:
            if self._decided is None and replica.counted:
                self._copy(replica, None)
        elif not replica.assigned:
            return
        elif replica.mark < target:
            self._copy(replica, target)
        elif not replica.aligned:
            replica.step = Step.ALIGNING
            self._effects.append(Truncate(replica.replica_id, target))
        elif not replica.marked:
            replica.step = Step.MARKING
            self._effects.append(SetLowWaterMark(replica.replica_id, target))
        elif is_clean(self._metadata.replicas.get(replica.replica_id), self._session_id):
            self._join(replica)
        else:
            replica.step = Step.RECOVERED

    def _compare(self, replica: _Replica) -> None:
        """Compare the last record that the replica shares with another replica, if there is one.

        Two diverged logs never agree again, because a repeated append has another request id.
        """
        own_mark = replica.mark
        assert own_mark is not None
        sources = [
            (other.failed_reads, -min(other.mark, own_mark), other.replica_id)
            for other in self._replicas.values()
            if other.proved and other.mark is not None and min(other.mark, own_mark) > NO_TRANSACTION
        ]
        if sources:
            _, negative_id, source = min(sources)
            replica.step = Step.COMPARING
            self._effects.append(Compare(replica.replica_id, source, -negative_id))

    def _copy(self, replica: _Replica, target: int | None) -> None:
        """Copy the next records to the replica from the nearest replica ahead of it, preferably from one that could be
        read before."""
        own_mark = replica.mark
        assert own_mark is not None
        sources = [
            (other.failed_reads, other.mark, other.replica_id)
            for other in self._replicas.values()
            if other.mark is not None
            and other.mark > own_mark
            and (other.counted or other.marked)
            and other.step is not Step.COMPARING
        ]
        if sources:
            _, mark, source = min(sources)
            replica.step = Step.COPYING
            last = mark if target is None else min(mark, target)
            self._effects.append(Copy(replica.replica_id, source, own_mark + 1, last))

    # Metadata

    def _write(self) -> None:
        if self._write_in_flight is not None:
            return
        wanted = self._wanted_write()
        if wanted is not None:
            self._writes += 1
            self._write_in_flight = wanted
            self._effects.append(WriteMetadata(wanted, self._version))

    def _wanted_write(self) -> PartitionMetadata | None:
        if self._records or self._closings:
            return self._metadata._replace(replicas=self._metadata.replicas | self._records | self._closings)
        steps = [replica.step for replica in self._replicas.values()]
        members_wait = Step.RECOVERED in steps if self._opened else self._quorum_recovered()
        if self.high_water_mark is not None and members_wait:
            clean = [r.replica_id for r in self._replicas.values() if r.step in (Step.RECOVERED, Step.JOINED)]
            states = states_after_recovery(self._metadata, self._assigned, clean, self.high_water_mark)
            return self._metadata._replace(replicas=states)
        connected = sum(1 for replica in self._replicas.values() if replica.step not in (Step.ABSENT, Step.REFUSED))
        if Step.VERIFYING in steps and (self._opened or connected >= self._quorum):
            return self._metadata
        return None

    def _quorum_recovered(self) -> bool:
        return sum(1 for r in self._replicas.values() if r.step in (Step.RECOVERED, Step.JOINED)) >= self._quorum

    def _opened_by(self, written: PartitionMetadata) -> bool:
        """Whether this write ends the recovery, because it has a quorum of members."""
        if self._opened or self.high_water_mark is None:
            return False
        members = sum(1 for state in written.replicas.values() if is_clean(state, self._session_id))
        return members >= self._quorum
