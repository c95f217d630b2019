"""Recoveries of a partition whose oldest transactions are trimmed, in random orders."""

import random

import pytest

from tests.unit.server.store.fakes import TRIMMED
from tests.unit.server.store.recovery_model import Model, Stored, U, record, replica

NAMES = ("a", "b", "c")
SESSION = 5


def check(model: Model, mark: int) -> None:
    """Every member of the session has the log from the trim point on, and nothing else."""
    for name, position in model.joined.items():
        partition = model.storages[name]
        assert position == mark
        assert partition.first <= model.trim_point
        assert partition.records[partition.first :] == [record(i) for i in range(partition.first, mark + 1)]


def trimmed(model: Model, name: str, point: int) -> None:
    assert model.storages[name].trim(point) == point


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("has", [-1, 0, 3, 9, 10, 12, 30])
def test_a_new_or_late_replica_begins_at_the_trim_point(seed: int, has: int) -> None:
    states = {"a": (SESSION, U), "b": (SESSION, U)}
    storages = {"a": Stored(SESSION, 20, 30), "b": Stored(SESSION, 20, 30), "c": Stored(-1, -1, has)}
    if has >= 0:
        states["c"] = (SESSION - 1, has)
        storages["c"] = Stored(SESSION - 1, min(has, 5), has)
    model = Model(states, storages, seed=seed, trim_point=10)
    for name in ("a", "b"):
        trimmed(model, name, 10)
    model.begin(NAMES)
    model.run(NAMES)
    assert model.opened == 30
    assert set(model.joined) == set(NAMES)
    check(model, 30)
    assert ("c" in model.begun) == (has + 1 < 10)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("has", [3, 9, 10, 25])
def test_another_log_is_dropped_with_what_is_trimmed_or_refused(seed: int, has: int) -> None:
    """S9: the records of a storage that the metadata do not know may be those of another log."""
    states = {"a": (SESSION, U), "b": (SESSION, U)}
    storages = {"a": Stored(SESSION, 20, 30), "b": Stored(SESSION, 20, 30), "c": Stored(SESSION - 1, has, has, 0)}
    model = Model(states, storages, seed=seed, trim_point=10)
    for name in ("a", "b"):
        trimmed(model, name, 10)
    model.begin(NAMES)
    model.run(NAMES)
    assert model.opened == 30
    check(model, 30)
    assert ("c" in model.joined) == (has < 10)
    assert ("c" in model.refused) == (has >= 10)


@pytest.mark.parametrize("seed", range(20))
def test_nothing_uncommitted_counts_as_trimmed(seed: int) -> None:
    """A trim point above what is certain, which no tool makes, lets no replica begin there."""
    states = {"a": (SESSION, U), "b": (SESSION, U), "c": (SESSION - 1, 3)}
    storages = {"a": Stored(SESSION, 8, 30), "b": Stored(SESSION, 8, 20), "c": Stored(SESSION - 1, 3, 3)}
    model = Model(states, storages, seed=seed, trim_point=1000)
    model.begin(NAMES)
    model.run(("a", "c"))  # before the decision only the low-water mark of a storage is certain
    assert model.opened == 30
    assert model.joined == {"a": 30, "c": 30}
    late = model.storages["c"]
    assert late.first == 9
    assert late.records[9:] == [record(i) for i in range(9, 31)], "the only copies of them besides those at a"


def drawn(seed: int, choices: random.Random) -> tuple[Model, int, str]:
    """Storages with any part of the log, and of the trim. Also returns the committed mark, and the storage that may
    lack anything."""
    mark = choices.randint(5, 40)
    low = choices.randint(0, mark)
    point = choices.randint(0, low + 1)
    late = choices.choice(NAMES)
    states = {name: (SESSION, U) for name in NAMES if name != late}
    storages = {name: Stored(SESSION, low, choices.randint(mark, mark + 3)) for name in states}
    has = choices.randint(-1, mark)
    kind = choices.choice(("new", "unknown", "closed", "member"))
    if kind == "member":
        states[late] = (SESSION, U)
        storages[late] = Stored(SESSION, low, max(has, low))
    elif kind == "closed":
        states[late] = (SESSION - 1, has)
        storages[late] = Stored(SESSION - 1, choices.randint(-1, has), has)
    elif kind == "unknown":
        storages[late] = Stored(SESSION - 2, has, has, choices.choice((0, 1 << 30)))
    else:
        storages[late] = Stored(-1, -1, -1)
    model = Model(states, storages, seed=seed, trim_point=point)
    for name in NAMES:
        partition = model.storages[name]
        bound = min(point, partition.low_water_mark + 1, partition.maximum + 1)
        if bound > 0 and (name != late or choices.random() < 0.5):
            partition.trim(choices.randint(0, bound))
    return model, mark, late


def disturb(model: Model, choices: random.Random) -> None:
    """A session that loses connections at random moments."""
    model.begin(NAMES)
    assert model.machine is not None
    for _ in range(choices.randint(0, 30)):
        connected = sorted(model.connected)
        absent = [n for n in NAMES if n not in model.connected and not model.machine.is_barred(replica(n))]
        if absent and choices.random() < 0.4:
            model.connect(choices.choice(absent))
        elif connected and choices.random() < 0.15:
            model.lose(choices.choice(connected))
        elif not model.idle:
            model.step()
        if model.aborted:
            return


@pytest.mark.parametrize("seed", range(400))
def test_sessions_after_losses_at_any_moment(seed: int) -> None:
    choices = random.Random(seed)
    model, mark, late = drawn(seed, choices)
    for _ in range(4):
        disturb(model, choices)
    model.begin(NAMES)
    model.run(NAMES)
    assert model.aborted is None
    assert model.opened is not None
    assert model.opened >= mark
    check(model, model.opened)
    assert set(NAMES) - {late} <= set(model.joined)
    assert TRIMMED not in model.storages[late].records[model.trim_point :]
