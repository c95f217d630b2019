"""Which partitions the death of a zone would stop."""

import random

from tests.unit.console.fakes import cluster
from waltz.operations.survey.problems import WARNING, find_problems
from waltz.operations.survey.zone_risks import ZoneRisk, find_zone_risks

REBALANCE = "waltz cluster rebalance --replicas --apply"


def racks(zones: str) -> dict[str, dict[str, str]]:
    """Storages 0, 1, ... in racks of one letter; a dot stands for no label."""
    return {str(number): {"rack": zone} for number, zone in enumerate(zones) if zone != "."}


def test_replicas_in_different_zones_are_no_risk() -> None:
    assert find_zone_risks({0: "012"}, racks("abc"), [0]) == []
    assert find_zone_risks({0: "01234"}, racks("aabbc"), [0]) == []


def test_a_majority_in_one_zone() -> None:
    storages = {0: "012", 1: "034", 2: "013", 3: "01"}
    (risk,) = find_zone_risks(storages, racks("aabcc"), range(4))[:1]
    assert risk == ZoneRisk({"rack": "a"}, (0, 2), True)
    assert risk.text == "the death of rack=a would stop partitions 0, 2"
    assert str(risk.remedy) == f"{REBALANCE} (docs/runbook.md#zones)"
    assert find_zone_risks(storages, racks("aabcc"), [0, 3]) == [ZoneRisk({"rack": "a"}, (0,), True)]


def test_too_few_zones_need_another_one() -> None:
    (risk,) = find_zone_risks({0: "012"}, racks("aab"), [0])
    assert risk == ZoneRisk({"rack": "a"}, (0,), False)
    assert risk.remedy.do == f"add storages in another rack, then {REBALANCE}"


def test_half_of_an_even_number_is_enough_to_stop() -> None:
    assert [dict(risk.zone) for risk in find_zone_risks({0: "0123"}, racks("aabb"), [0])] == [
        {"rack": "a"},
        {"rack": "b"},
    ]
    assert find_zone_risks({0: "0123"}, racks("aabc"), [0]) == [ZoneRisk({"rack": "a"}, (0,), False)]


def test_datacenters_are_told_before_racks() -> None:
    labels = {str(each): {"datacenter": "xxyz"[each], "rack": "1123"[each]} for each in range(4)}
    assert find_zone_risks({0: "012"}, labels, [0]) == [
        ZoneRisk({"datacenter": "x"}, (0,), True),
        ZoneRisk({"datacenter": "x", "rack": "1"}, (0,), True),
    ]


def test_one_zone_or_none_is_meant_to_be_so() -> None:
    assert find_zone_risks({0: "012"}, racks("aaa"), [0]) == []
    assert find_zone_risks({0: "012"}, {}, [0]) == []


def test_storages_without_labels_are_in_no_zone() -> None:
    assert find_zone_risks({0: "012"}, racks("aa.b"), [0]) == [ZoneRisk({"rack": "a"}, (0,), False)]
    assert find_zone_risks({0: "012"}, racks("a..b"), [0]) == []


def test_every_zone_that_takes_the_majority_is_found() -> None:
    chance = random.Random(1)
    for _ in range(300):
        zones = "".join(chance.choice("abcd") for _ in range(6))
        held = chance.sample("012345", chance.choice((3, 4, 5)))
        found = {risk.zone["rack"] for risk in find_zone_risks({7: held}, racks(zones), [7])}
        expected = {zone for zone in zones if 2 * sum(zones[int(each)] != zone for each in held) <= len(held)}
        assert found == (expected if len(set(zones)) > 1 else set())


def test_risks_are_warnings_behind_no_check() -> None:
    state = cluster(2)._replace(
        zone_risks=(ZoneRisk({"datacenter": "a"}, (0, 1), True),), unreadable_labels=("/ext/storage/x holds nothing",)
    )
    told = [(each.severity, each.text, each.partitions, each.section) for each in find_problems(state)]
    assert told == [
        (WARNING, "the death of datacenter=a would stop partitions 0-1", "0-1", "zones"),
        (WARNING, "/ext/storage/x holds nothing", "", "zones"),
    ]
    assert find_problems(state, every_check=True) == []
    assert (state.unwell, state.unwell_nodes) == (0, 0)
    assert state.document()["zone_risks"] == [
        {"zone": {"datacenter": "a"}, "partitions": [0, 1], "do": f"{REBALANCE} (docs/runbook.md#zones)"}
    ]
