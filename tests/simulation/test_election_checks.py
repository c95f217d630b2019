"""The checks of elections: what they let pass, and what they object to."""

import json

import pytest

from tests.simulation.election_checks import ElectionChecks
from waltz.client.election import Leadership
from waltz.common.zk.tree import Tree

ROOT = "/waltz"
NODE = f"{ROOT}/ext/election/0"


class World:
    """Candidates that make nodes, or do not."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.tree = Tree(lambda _: None, lambda _: None)
        for path in (ROOT, f"{ROOT}/ext", f"{ROOT}/ext/election"):
            self.tree.create(path, None)
        self.checks = ElectionChecks(self.failures.append, self.tree.get, ROOT)

    def make_node(self, term: int) -> None:
        self.tree.create(NODE, json.dumps({"name": "it", "term": term}).encode(), 1)

    def elect(self, name: str, term: int) -> Leadership:
        leadership = Leadership(0, term, -1, lambda: False)
        self.checks.elected(name, leadership)
        return leadership


@pytest.fixture
def world() -> World:
    return World()


def test_one_leader_after_the_other_passes(world: World) -> None:
    world.make_node(3)
    ann = world.elect("ann", 3)
    world.checks.resigns(ann)
    world.tree.delete(NODE)
    world.make_node(5)
    world.elect("bob", 5)
    world.tree.delete(NODE)  # the session of bob has ended
    world.make_node(8)
    world.elect("cid", 8)
    assert not world.failures
    assert world.checks.count == 3


def test_who_is_elected_behind_time_passes(world: World) -> None:
    """Its node is gone, and it has deposed nobody."""
    world.elect("ann", 3)
    world.make_node(5)
    world.elect("bob", 4)
    world.elect("cid", 5)
    assert not world.failures


def test_an_election_beside_a_leader_whose_node_lives(world: World) -> None:
    world.make_node(3)
    world.elect("ann", 3)
    world.elect("bob", 5)
    assert world.failures == ["bob is elected in term 5; ann leads in 3, and lives"]
