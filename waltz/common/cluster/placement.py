"""Chooses the storages of partitions, so that the loss of one zone leaves a majority of each partition. Pure.

A zone is defined by labels of a storage, the widest first: (datacenter, rack). A replica goes to the zone that its
partition uses least, at each width. Among the storages there it goes to the one with the fewest partitions, then with
the most free space, then by name. The measure for changes is the same: a replica moves if its partition uses another
zone less, or if another storage has at least two replicas fewer, directly or through a chain of storages.

Spec: Amza's placement takes members from the rack with the fewest ring members; the widths are of this project.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.common.zk.storage_labels import Labels

Zone = tuple[str, ...]
"""The values of the labels that define a zone, the widest first."""

Placement = Mapping[int, frozenset[str]]
"""The storages of each partition."""


class PlacementError(WaltzError):
    """The replicas cannot be placed as wanted."""


class Move(NamedTuple):
    """The move of a replica to another storage."""

    partition_id: int
    source: str
    destination: str


class Site(NamedTuple):
    """A storage that may hold replicas."""

    zone: Zone
    group: int
    """The group of storages: a replica moves only within it."""
    free_bytes: int = 0
    """The free bytes of its disk; 0 if unknown."""


class Sites:
    """All storages of a cluster, and the rules for the partitions on them."""

    def __init__(
        self,
        sites: Mapping[str, Site],
        rings: Iterable[tuple[Collection[str], Collection[int]]] = (),
        leaving: Collection[str] = (),
    ) -> None:
        """``rings`` are the rings, with their storages and partitions. ``leaving`` are the storages to be emptied."""
        self.sites = sites
        self._rings: dict[int, set[str]] = {}
        for storages, partition_ids in rings:
            for partition_id in partition_ids:
                self._rings.setdefault(partition_id, set()).update(storages)
        self._areas = {
            storage: [site.zone[:width] for width in range(1, len(site.zone) + 1)] for storage, site in sites.items()
        }
        self._leaving = frozenset(leaving)
        self._by_group: defaultdict[int, list[str]] = defaultdict(list)
        for storage, site in sorted(sites.items()):
            if storage not in self._leaving:
                self._by_group[site.group].append(storage)

    def choices(self, partition_id: int, group: int) -> list[str]:
        """The storages of a group that may hold the partition, by name."""
        ring = self._rings.get(partition_id)
        return [each for each in self._by_group[group] if ring is None or each in ring]

    def can_take(self, partition_id: int, source: str, destination: str) -> bool:
        """Whether the partition may move from one storage to another one, by group and ring."""
        ring = self._rings.get(partition_id)
        if destination in self._leaving or (ring is not None and destination not in ring):
            return False
        return self.sites[source].group == self.sites[destination].group

    def use(self, storage: str, others: Iterable[str]) -> tuple[int, ...]:
        """The number of the storages ``others`` in the zone of ``storage``, at each width."""
        theirs = [self._areas[each] for each in others if each in self._areas]
        return tuple(sum(other[at] == area for other in theirs) for at, area in enumerate(self._areas[storage]))


def zone_of(storage: str, labels: Labels, spread: Sequence[str]) -> Zone:
    """The zone of a storage. Raises :class:`PlacementError` if a label is missing."""
    missing = [key for key in spread if key not in labels]
    if missing:
        values = " ".join(f"{key}=..." for key in missing)
        raise PlacementError(
            f"storage {storage} has no label {' and no label '.join(missing)}: waltz storage label {storage} {values}"
        )
    return tuple(labels[key] for key in spread)


def place(
    sites: Sites, partition_ids: Iterable[int], size: int, group: int, loads: Mapping[str, int], *, force: bool = False
) -> dict[int, frozenset[str]]:
    """Choose ``size`` storages of a group for each partition.

    Args:
        sites: The storages.
        partition_ids: Partitions without replicas in the group.
        size: Number of replicas.
        group: The group of storages.
        loads: Number of partitions that storages have already.
        force: Whether two replicas may be in one zone if there are not enough zones.

    Raises:
        PlacementError: There are not enough storages, or not enough zones.
    """
    partition_ids = sorted(partition_ids)
    placed: dict[int, frozenset[str]] = {}
    counts = {storage: loads.get(storage, 0) for storage in sites.sites}
    for partition_id in partition_ids:
        choices = sites.choices(partition_id, group)
        _check_choices(sites, choices, size, force)
        chosen: list[str] = []
        for _ in range(size):
            rest = [each for each in choices if each not in chosen]
            best = min(rest, key=lambda each: (sites.use(each, chosen), *_order(sites, counts, each)))
            chosen.append(best)
            counts[best] += 1
        placed[partition_id] = frozenset(chosen)
    return _Balancing(sites, placed, loads).run()


def _order(sites: Sites, counts: Mapping[str, int], storage: str) -> tuple[int, int, str]:
    return counts[storage], -sites.sites[storage].free_bytes, storage


def _check_choices(sites: Sites, choices: Sequence[str], size: int, force: bool) -> None:
    if size < 1:
        raise PlacementError(f"a partition has at least 1 replica, not {size}")
    if len(choices) < size:
        names = ", ".join(choices) or "none"
        raise PlacementError(f"{size} replicas need {size} storage nodes; there are {len(choices)}: {names}")
    zones = {sites.sites[each].zone for each in choices}
    if len(zones) < size and not force and zones != {()}:
        names = ", ".join("/".join(zone) for zone in sorted(zones))
        raise PlacementError(
            f"{size} replicas in different zones need {size} zones; there are {len(zones)}: {names}. Add storage nodes "
            "in further zones, or allow several replicas in one zone (--force)"
        )


def plan_moves(sites: Sites, now: Placement, loads: Mapping[str, int]) -> list[Move]:
    """The moves that spread the replicas over zones and even out the storages.

    The moves are those that zones and loads need; sometimes there is one more, because a destination is chosen for one
    replica at a time. A partition keeps its number of replicas. Its moves are in the order that keeps its replicas
    spread best in between.

    Args:
        sites: The storages.
        now: The storages of each partition whose replicas may move.
        loads: The number of further partitions on storages.

    Raises:
        PlacementError: There is no place for a replica on a storage to be emptied, or outside of its ring.
    """
    after = _Balancing(sites, now, loads).run()
    return [move for partition_id in sorted(now) for move in _ordered(sites, partition_id, now, after)]


def _ordered(sites: Sites, partition_id: int, now: Placement, after: Placement) -> Iterator[Move]:
    held, wanted = set(now[partition_id]), after[partition_id]
    while held != wanted:
        _, leaving, joining = min(
            (sites.use(joining, held - {leaving}), leaving, joining)
            for leaving in held - wanted
            for joining in wanted - held
            if sites.sites[leaving].group == sites.sites[joining].group
        )
        held = (held - {leaving}) | {joining}
        yield Move(partition_id, leaving, joining)


class _Balancing:
    """A placement that is improved step by step."""

    def __init__(self, sites: Sites, placement: Placement, loads: Mapping[str, int]) -> None:
        self._sites = sites
        self._held: dict[int, set[str]] = {each: set(storages) for each, storages in placement.items()}
        self._by_storage: dict[str, set[int]] = {storage: set() for storage in sites.sites}
        self._counts = {storage: loads.get(storage, 0) for storage in sites.sites}
        self._stuck: set[str] = set()
        """The storages for which the last search has found no single move that helps."""
        self._has_moved = False
        """Whether a replica has moved since the set of storages without a helpful move was empty."""
        for partition_id, storages in self._held.items():
            for storage in storages & self._by_storage.keys():
                self._by_storage[storage].add(partition_id)
                self._counts[storage] += 1

    def run(self) -> dict[int, frozenset[str]]:
        """Spread, then even out. Returns the placement."""
        for partition_id in sorted(self._held):
            self._spread(partition_id)
        while chain := self._find_moves() or self._find_chain():
            for move in chain:
                self._move(move)
        return {partition_id: frozenset(storages) for partition_id, storages in self._held.items()}

    def _move(self, move: Move) -> None:
        held = self._held[move.partition_id]
        held.remove(move.source)
        held.add(move.destination)
        self._by_storage[move.destination].add(move.partition_id)
        self._counts[move.destination] += 1
        self._by_storage[move.source].remove(move.partition_id)
        self._counts[move.source] -= 1
        self._has_moved = True

    def _spread(self, partition_id: int) -> None:
        """Move replicas while the partition uses another zone less, or has a replica outside of its ring."""
        sites = self._sites
        while True:
            held = self._held[partition_id]
            found: list[tuple[tuple[int, ...], int, tuple[int, int, str], str, str]] = []
            for storage in sorted(held & self._by_storage.keys()):
                others = held - {storage}
                choices = sites.choices(partition_id, sites.sites[storage].group)
                better = [each for each in choices if each not in held]
                if storage not in choices and not better:
                    raise PlacementError(f"no storage node can take partition {partition_id} from {storage}")
                if storage in choices:
                    limit = sites.use(storage, others)
                    better = [each for each in better if sites.use(each, others) < limit]
                found += [
                    (sites.use(each, others), -self._counts[storage], _order(sites, self._counts, each), storage, each)
                    for each in better
                ]
            if not found:
                return
            *_, source, destination = min(found)
            self._move(Move(partition_id, source, destination))

    def _find_moves(self) -> list[Move]:
        """A single move to a storage with at least two replicas fewer, from the fullest storage with such a move."""
        while True:
            for start in self._fullest():
                if start not in self._stuck:
                    if (move := self._direct_move(start)) is not None:
                        return [move]
                    self._stuck.add(start)
            if not self._has_moved:
                return []
            # Moves since then may have made room.
            self._stuck.clear()
            self._has_moved = False

    def _direct_move(self, start: str) -> Move | None:
        limit = self._counts[start] - 2
        emptier = [storage for storage, count in self._counts.items() if count <= limit]
        for destination in sorted(emptier, key=lambda each: _order(self._sites, self._counts, each)):
            for partition_id in sorted(self._by_storage[start]):
                if self._can_move(partition_id, start, destination):
                    return Move(partition_id, start, destination)
        return None

    def _can_move(self, partition_id: int, source: str, destination: str) -> bool:
        """Whether the destination may hold the partition, and the partition does not use the zones of the destination
        more."""
        sites, held = self._sites, self._held[partition_id]
        if destination in held or not sites.can_take(partition_id, source, destination):
            return False
        others = held - {source}
        return sites.use(destination, others) <= sites.use(source, others)

    def _fullest(self) -> list[str]:
        """The storages with at least two replicas more than the emptiest storage, the fullest first."""
        least = min(self._counts.values())
        full = [storage for storage, count in self._counts.items() if count >= least + 2]
        return sorted(full, key=lambda each: (-self._counts[each], each))

    def _find_chain(self) -> list[Move]:
        """The shortest chain of moves from the fullest storage to a storage with at least two replicas fewer.

        A storage that a search without a result has reached needs no search of its own, because it is emptier.
        """
        reached: set[str] = set()
        for start in self._fullest():
            if start not in reached and (chain := self._chain_from(start, reached)):
                return chain
        return []

    def _chain_from(self, start: str, reached: set[str]) -> list[Move]:
        limit = self._counts[start] - 2
        came: dict[str, Move] = {}
        queue = deque([start])
        reached.add(start)
        while queue:
            storage = queue.popleft()
            chain = _chain(came, start, storage)
            moves = self._next_moves(storage, reached, chain)
            ends = [move for move in moves if self._counts[move.destination] <= limit]
            if ends:
                return [*chain, ends[0]]
            for move in moves:
                came[move.destination] = move
                queue.append(move.destination)
                reached.add(move.destination)
        return []

    def _next_moves(self, storage: str, known: Collection[str], chain: Sequence[Move]) -> list[Move]:
        """A move to each storage that can take a replica and was not reached yet, the emptiest first."""
        moved = {move.partition_id for move in chain}
        partition_ids = sorted(self._by_storage[storage] - moved)
        moves = []
        for destination in sorted(
            self._counts.keys() - known, key=lambda each: _order(self._sites, self._counts, each)
        ):
            for partition_id in partition_ids:
                if self._can_move(partition_id, storage, destination):
                    moves.append(Move(partition_id, storage, destination))
                    break
        return moves


def _chain(came: Mapping[str, Move], start: str, end: str) -> list[Move]:
    chain: list[Move] = []
    while end != start:
        chain.append(came[end])
        end = came[end].source
    return chain[::-1]
