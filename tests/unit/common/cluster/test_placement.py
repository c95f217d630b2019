"""Placement of replicas: zones first, then even storages; changes move no more than necessary."""

import math
import random
from collections import Counter
from collections.abc import Mapping

import pytest

from waltz.common.cluster.placement import Move, Placement, PlacementError, Site, Sites, place, plan_moves, zone_of


def random_clusters(some: int, all_of_them: int) -> pytest.MarkDecorator:
    """The numbers of random clusters: some for every day, and the rest."""
    rest = pytest.param(range(some, all_of_them), id="rest", marks=pytest.mark.deep)
    return pytest.mark.parametrize("numbers", [pytest.param(range(some), id="some"), rest])


Storages = Mapping[str, tuple[str, ...]]
"""The zone of each storage."""


def cluster(storages: Storages) -> Sites:
    return Sites({storage: Site(zone, 0) for storage, zone in storages.items()})


def random_storages(chance: random.Random, *, zones: int) -> dict[str, tuple[str, ...]]:
    """Zones of one to five storages, in one to four datacenters."""
    datacenters = chance.randint(1, 4)
    storages: dict[str, tuple[str, ...]] = {}
    for zone in range(zones):
        for number in range(chance.randint(1, 5)):
            storages[f"s{zone}-{number}:1"] = (f"dc{zone % datacenters}", f"rack{zone}")
    return storages


def loads_of(placement: Placement, storages: Storages) -> dict[str, int]:
    counts = Counter(storage for held in placement.values() for storage in held)
    return {storage: counts[storage] for storage in storages}


def zones_used(placement: Placement, storages: Storages, width: int) -> dict[int, Counter[str]]:
    return {
        partition_id: Counter("/".join(storages[each][:width]) for each in held)
        for partition_id, held in placement.items()
    }


def fair_loads(storages: Storages, partitions: int, size: int) -> dict[str, float]:
    """The most even loads, in fractions, for which no zone holds a partition twice. One width only."""
    members = Counter(zone for zone in storages.values())
    left, open_zones = float(partitions * size), set(members)
    shares: dict[tuple[str, ...], float] = {}
    while open_zones:
        level = left / sum(members[zone] for zone in open_zones)
        full = {zone for zone in open_zones if members[zone] * level >= partitions}
        if not full:
            shares |= dict.fromkeys(open_zones, level)
            break
        for zone in full:
            shares[zone] = partitions / members[zone]
        left -= partitions * len(full)
        open_zones -= full
    return {storage: shares[zone] for storage, zone in storages.items()}


@random_clusters(100, 1000)
def test_random_clusters_use_no_zone_twice_and_are_even(numbers: range) -> None:
    for number in numbers:
        chance = random.Random(1000 + number)
        size = chance.choice((1, 2, 3, 3, 3, 5))
        storages = {
            storage: ("/".join(zone),)
            for storage, zone in random_storages(chance, zones=chance.randint(size, 8)).items()
        }
        partitions = chance.choice((1, 7, 20, 40))
        placed = place(cluster(storages), range(partitions), size, 0, {})
        assert placed.keys() == set(range(partitions))
        for used in zones_used(placed, storages, 1).values():
            assert sorted(used.values()) == [1] * size
        loads, fair = loads_of(placed, storages), fair_loads(storages, partitions, size)
        for storage in storages:
            assert math.floor(fair[storage] * 0.9) <= loads[storage] <= math.ceil(fair[storage] * 1.1)


@random_clusters(100, 1000)
def test_random_clusters_spread_over_datacenters_first(numbers: range) -> None:
    for number in numbers:
        chance = random.Random(2000 + number)
        storages = random_storages(chance, zones=chance.randint(3, 8))
        datacenters = len({zone[0] for zone in storages.values()})
        placed = place(cluster(storages), range(chance.choice((5, 20))), 3, 0, {})
        for used in zones_used(placed, storages, 2).values():
            possible = min(3, datacenters)
            assert sum(used.values()) == 3
            assert len({zone.split("/")[0] for zone in used}) == possible
        if datacenters == 1:
            assert all(len(used) == 3 for used in zones_used(placed, storages, 2).values())


def test_the_same_cluster_is_placed_the_same_way() -> None:
    storages = random_storages(random.Random(3), zones=5)
    shuffled = dict(sorted(storages.items(), reverse=True))
    assert place(cluster(storages), range(40), 3, 0, {}) == place(cluster(shuffled), [*range(40)][::-1], 3, 0, {})


def after(placement: Placement, moves: list[Move], storages: Storages) -> dict[int, frozenset[str]]:
    """The placement after the moves, each of which must make sense."""
    placement = dict(placement)
    for partition_id, source, destination in moves:
        held = placement[partition_id]
        assert source in held
        assert destination not in held
        assert destination in storages
        placement[partition_id] = (held - {source}) | {destination}
    return placement


def least_moves(before: dict[str, int], later: dict[str, int]) -> int:
    """What the loads alone need."""
    return sum(max(0, later.get(storage, 0) - before.get(storage, 0)) for storage in before.keys() | later.keys())


@random_clusters(20, 100)
def test_a_placed_cluster_needs_no_move(numbers: range) -> None:
    for number in numbers:
        chance = random.Random(4000 + number)
        storages = random_storages(chance, zones=chance.randint(3, 8))
        sites = cluster(storages)
        assert plan_moves(sites, place(sites, range(30), 3, 0, {}), {}) == []


@random_clusters(20, 100)
def test_after_a_storage_came_only_its_share_moves(numbers: range) -> None:
    for number in numbers:
        chance = random.Random(5000 + number)
        zones = chance.randint(3, 6)
        storages = {f"s{zone}-{number}:1": (f"z{zone}",) for zone in range(zones) for number in range(3)}
        placed = place(cluster(storages), range(60), 3, 0, {})
        new_zone = chance.choice(("z0", "z1", f"z{zones}"))
        more = storages | {"new:1": (new_zone,)}
        moves = plan_moves(cluster(more), placed, {})
        later = after(placed, moves, more)
        assert all(max(used.values()) == 1 for used in zones_used(later, more, 1).values())
        loads = loads_of(later, more)
        assert len(moves) == least_moves(loads_of(placed, storages), loads)
        fair = fair_loads(more, 60, 3)
        assert all(abs(loads[each] - fair[each]) <= max(1, fair[each] / 10) for each in more)


@random_clusters(20, 100)
def test_a_storage_that_is_to_be_emptied_gives_everything_away_and_nothing_else_moves(numbers: range) -> None:
    for number in numbers:
        chance = random.Random(6000 + number)
        zones = chance.randint(3, 6)
        storages = {f"s{zone}-{number}:1": (f"z{zone}",) for zone in range(zones) for number in range(3)}
        placed = place(cluster(storages), range(60), 3, 0, {})
        leaving = chance.choice(sorted(storages))
        sites = Sites({storage: Site(zone, 0) for storage, zone in storages.items()}, (), [leaving])
        moves = plan_moves(sites, placed, {})
        later = after(placed, moves, storages)
        loads = loads_of(later, storages)
        assert loads[leaving] == 0
        assert all(max(used.values()) == 1 for used in zones_used(later, storages, 1).values())
        least = least_moves(loads_of(placed, storages), loads)
        assert least == loads_of(placed, storages)[leaving]
        assert least <= len(moves) <= least + max(1, least // 10)
        del loads[leaving]
        fair = fair_loads({each: zone for each, zone in storages.items() if each != leaving}, 60, 3)
        assert all(abs(loads[each] - fair[each]) <= max(1, fair[each] / 10) for each in loads)


def test_replicas_that_share_a_zone_are_parted() -> None:
    storages = {f"s{number}:1": (f"z{number // 2}",) for number in range(6)}
    now = {partition_id: frozenset({"s0:1", "s1:1", "s2:1"}) for partition_id in range(6)}
    moves = plan_moves(cluster(storages), now, {})
    later = after(now, moves, storages)
    assert all(max(used.values()) == 1 for used in zones_used(later, storages, 1).values())
    assert set(loads_of(later, storages).values()) == {3}
    assert len(moves) == least_moves(loads_of(now, storages), loads_of(later, storages))


@random_clusters(20, 100)
def test_random_placements_are_mended(numbers: range) -> None:
    for number in numbers:
        chance = random.Random(7000 + number)
        storages = random_storages(chance, zones=chance.randint(3, 6))
        if len(storages) < 3:
            continue
        now = {each: frozenset(chance.sample(sorted(storages), 3)) for each in range(30)}
        later = after(now, plan_moves(cluster(storages), now, {}), storages)
        possible = min(3, len({zone[0] for zone in storages.values()}))
        for used in zones_used(later, storages, 1).values():
            assert len(used) == possible
        assert plan_moves(cluster(storages), later, {}) == []


def test_replicas_stay_in_their_group() -> None:
    sites = Sites({f"s{group}{number}:1": Site((f"z{number}",), group) for group in range(3) for number in range(2)})
    now = {each: frozenset({"s00:1", "s10:1", "s20:1"}) for each in range(4)}
    moves = plan_moves(sites, now, {})
    assert moves
    for _, source, destination in moves:
        assert sites.sites[source].group == sites.sites[destination].group


def test_rings_keep_their_partitions() -> None:
    storages = {f"s{number}:1": (f"z{number % 3}",) for number in range(9)}
    ring = [f"s{number}:1" for number in range(3)]
    sites = Sites({storage: Site(zone, 0) for storage, zone in storages.items()}, [(ring, [0, 1])])
    placed = place(sites, range(8), 3, 0, {})
    assert placed[0] == placed[1] == frozenset(ring)
    assert max(loads_of(placed, storages).values()) <= 3
    outside = {**placed, 0: frozenset({"s3:1", "s4:1", "s5:1"})}
    later = after(outside, plan_moves(sites, outside, {}), storages)
    assert later[0] == frozenset(ring)


def test_free_space_decides_between_equals() -> None:
    sites = Sites({"a:1": Site(("z",), 0, 1), "b:1": Site(("z",), 0, 9), "c:1": Site(("z",), 0, 5)})
    assert place(sites, [0], 1, 0, {}) == {0: frozenset({"b:1"})}
    assert place(sites, [0], 1, 0, {"b:1": 1}) == {0: frozenset({"c:1"})}


def test_too_few_zones_are_refused_unless_forced() -> None:
    storages = {"a:1": ("x",), "b:1": ("x",), "c:1": ("y",)}
    with pytest.raises(PlacementError, match=r"need 3 zones; there are 2: x, y\. Add storage nodes"):
        place(cluster(storages), [0], 3, 0, {})
    assert place(cluster(storages), [0], 3, 0, {}, force=True) == {0: frozenset(storages)}
    with pytest.raises(PlacementError, match="4 replicas need 4 storage nodes; there are 3"):
        place(cluster(storages), [0], 4, 0, {}, force=True)
    with pytest.raises(PlacementError, match="at least 1 replica, not 0"):
        place(cluster(storages), [0], 0, 0, {})
    without = dict.fromkeys(storages, ())
    assert place(cluster(without), [0], 3, 0, {}) == {0: frozenset(storages)}


def test_a_replica_that_can_go_nowhere() -> None:
    sites = Sites({each: Site(("x",), 0) for each in ("a:1", "b:1")}, (), ["a:1"])
    with pytest.raises(PlacementError, match="no storage node can take partition 3 from a:1"):
        plan_moves(sites, {3: frozenset({"a:1", "b:1"})}, {})


def test_zones_are_made_of_labels() -> None:
    labels = {"datacenter": "a", "rack": "1"}
    assert zone_of("s:1", labels, ("datacenter", "rack")) == ("a", "1")
    assert zone_of("s:1", labels, ()) == ()
    with pytest.raises(PlacementError, match=r"storage s:1 has no label disk: waltz storage label s:1 disk=\.\.\."):
        zone_of("s:1", labels, ("rack", "disk"))
