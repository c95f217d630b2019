"""Consumers that are killed at any moment, again and again: ``WALTZ_POSITION_KILLS=200`` for a long run."""

import multiprocessing
import os
import random
import signal
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from tests.unit.client.positions.killed import DONE, PARTITIONS, TRANSACTIONS, consume

KILLS = int(os.environ.get("WALTZ_POSITION_KILLS", "6"))
LONGEST_LIFE_S = 0.2

pytestmark = pytest.mark.timeout(60 + 2 * KILLS)

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload(["tests.unit.client.positions.killed"])

ALL = {(partition, number) for partition in range(PARTITIONS) for number in range(TRANSACTIONS)}


def ended(kind: str, directory: Path, lifetime_s: float) -> int | None:
    process = _processes.Process(target=consume, args=(kind, directory, lifetime_s))
    process.start()
    process.join()
    return process.exitcode


def killed_again_and_again(kind: str, directory: Path) -> None:
    chance = random.Random(kind)
    for _ in range(KILLS):
        assert ended(kind, directory, chance.uniform(0.001, LONGEST_LIFE_S)) == -signal.SIGALRM
    assert ended(kind, directory, 0) == 0


@pytest.mark.parametrize("kind", ["sqlite", "sqlalchemy"])
def test_with_the_position_in_the_transaction_of_the_effects_each_is_there_once(kind: str, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "positions")) as connection:
        connection.execute(f"CREATE TABLE {DONE} (partition INTEGER, id INTEGER)")
        connection.commit()
        killed_again_and_again(kind, tmp_path)
        done = Counter(connection.execute(f"SELECT partition, id FROM {DONE}").fetchall())
    assert done == Counter(ALL)


def test_with_a_commit_after_the_effect_only_what_was_at_hand_is_done_twice(tmp_path: Path) -> None:
    killed_again_and_again("file", tmp_path)
    lines = (tmp_path / DONE).read_text().splitlines()
    done = Counter((int(partition), int(number)) for partition, number in map(str.split, lines))
    assert set(done) == ALL
    assert sum(done.values()) - len(done) <= KILLS
