"""Write sessions in the simulation: they are there where they are asked for, and not to be noticed elsewhere."""

import contextlib
import gc
from collections.abc import Iterator
from unittest import mock

import pytest

from tests.simulation.__main__ import Course
from tests.simulation.options import CONDITIONS
from tests.simulation.simulation import Simulation
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.server.partition.fencing import Fencing
from waltz.server.partition.write_session import WriteSession
from waltz.server.requests.link import ClientLink
from waltz.server.requests.pending import Pending

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
"""Processes that are killed close nothing."""


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    """Collect the killed processes while the warning is ignored."""
    yield
    gc.collect()


SMALL = {"transactions": 400, "duration_s": 20.0, "checkpoint_interval": 50}


@contextlib.contextmanager
def without_write_sessions() -> Iterator[None]:
    """Servers that have none, and clients that would be told that nothing came of it."""

    def admit_everything(session: WriteSession, client_id: int | None, write_session: int) -> bool:
        return write_session == NO_WRITE_SESSION

    def begin_nothing(fencing: Fencing, session_id: int, unbroken: bool, fence: Pending | None, mark: int) -> None:
        assert fence is None

    def answer_nothing(fencing: Fencing, pending: Pending, mark: int) -> bool:
        raise AssertionError("nobody uses write sessions")

    with (
        mock.patch.object(WriteSession, "admits", admit_everything),
        mock.patch.object(Fencing, "store_session_begun", begin_nothing),
        mock.patch.object(Fencing, "answer", answer_nothing),
    ):
        yield


@pytest.mark.parametrize("seed", [pytest.param(1, id="checkpoints"), pytest.param(4, id="deposed owners")])
def test_where_nobody_uses_them_nothing_is_different(seed: int) -> None:
    course = Course(conditions=SMALL)
    with_sessions = course.run(seed)
    assert not with_sessions.failures
    with without_write_sessions():
        without = course.run(seed)
    assert with_sessions.digest == without.digest
    assert with_sessions.events > 1_000


def test_where_they_are_used_much_is_checked() -> None:
    course = Course(conditions=CONDITIONS["write-sessions"])
    simulation = Simulation(1, course.options(1))
    result = simulation.run()
    assert not result.failures
    assert simulation.write_sessions is not None
    checks = simulation.write_sessions.checks
    assert checks.fences >= 10
    assert checks.refused_count >= 10


def test_who_checks_disturbs_nothing() -> None:
    send, begun = ClientLink.send, Fencing.store_session_begun
    Course(conditions=CONDITIONS["write-sessions"]).run(0)
    assert (ClientLink.send, Fencing.store_session_begun) == (send, begun)
