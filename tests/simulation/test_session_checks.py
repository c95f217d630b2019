"""The checks of write sessions: what they let pass, and what each of them objects to."""

import pytest

from tests.simulation.session_checks import Opened, SessionChecks
from waltz.common.ids import ReqId
from waltz.common.wire.write_sessions import NO_WRITE_SESSION

PARTITION = 2
ANN, BOB = 7, 8
FIRST, SECOND = "first owner", "second owner"


class World:
    """Owners that begin store sessions, and a log."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.checks = SessionChecks(self.failures.append, 2)
        self.held: dict[str, tuple[int, int | None]] = {}
        self.requests = 0

    def record(self, session_id: int, storages: int = 2) -> None:
        for storage in range(storages):
            self.checks.recorded(f"storage-{storage}", PARTITION, session_id)

    def begin(
        self,
        owner: str,
        session_id: int,
        mark: int,
        *,
        fence: bool = False,
        holder: int | None = None,
        asked_for: int | None = None,
        number: int | None = None,
        generation: int = 1,
    ) -> None:
        """An owner begins a store session; ``number`` as it should be, unless it is given."""
        self.record(session_id)
        before = self.held.get(owner, (NO_WRITE_SESSION, None))
        after = self.held[owner] = (session_id + 1 if number is None else number), holder
        opened = Opened(session_id, generation)
        self.checks.begun(owner, PARTITION, opened, mark, before, after, (fence, asked_for))

    def carry(self, client_id: int, number: int = NO_WRITE_SESSION) -> bytes:
        self.requests += 1
        req_id = ReqId.of(client_id, 1, PARTITION, self.requests)
        self.checks.carried(req_id, number)
        return req_id

    def land(self, transaction_id: int, client_id: int, number: int = NO_WRITE_SESSION) -> None:
        self.checks.landed(PARTITION, transaction_id, self.carry(client_id, number))

    @property
    def failure(self) -> str:
        """The only one."""
        (failure,) = self.failures
        return failure


@pytest.fixture
def world() -> World:
    return World()


def test_an_ordinary_course_passes(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.land(0, ANN, 1)
    world.land(1, BOB)
    world.begin(FIRST, 1, 1, number=1)
    world.land(2, ANN, 1)
    world.begin(FIRST, 2, 2, fence=True, holder=BOB, asked_for=BOB)
    world.checks.fenced(PARTITION, 2, 3, "bob", 1)
    world.checks.refused(world.carry(ANN, 1), 3)
    world.checks.refused(world.carry(ANN, 3), 3)
    world.checks.refused(world.carry(ANN), 3)
    world.land(3, BOB, 3)
    world.begin(SECOND, 4, 3)
    world.checks.told(PARTITION, 3, 5)
    world.land(4, ANN)
    world.checks.told(PARTITION, 3, 3)  # the first owner does not know yet
    assert not world.failures


def test_an_older_number_behind_a_fence(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.land(0, ANN, 1)
    world.begin(FIRST, 1, 0, fence=True)
    world.checks.fenced(PARTITION, 0, 2, "bob")
    world.land(1, ANN, 1)
    assert "number 2 was in force when the log ended at 0" in world.failures[0]


def test_an_older_number_behind_a_fence_that_is_told_later(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.land(0, ANN, 1)
    world.land(1, ANN, 1)
    world.checks.told(PARTITION, 0, 2)
    assert "sent under number 1; number 2 was in force" in world.failure


def test_a_newer_number_before_an_older_one_is_over(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.land(0, ANN, 2)
    assert "belongs to number 1" in world.failures[0]
    world.failures.clear()
    world.checks.told(PARTITION, 0, 1)
    assert "number 1 was still in force" in world.failure


def test_a_record_of_nobody_in_an_exclusive_session(world: World) -> None:
    world.begin(FIRST, 0, -1, fence=True, holder=ANN, asked_for=ANN)
    world.land(0, ANN, 1)
    assert not world.failures
    world.land(1, BOB)
    assert "client 7 holds alone" in world.failures.pop()
    world.land(2, ANN)
    assert "client 7 holds alone" in world.failures.pop()
    world.land(3, BOB, 1)
    assert "client 7 holds alone" in world.failure


def test_what_was_undecided_belongs_to_the_number_before(world: World) -> None:
    world.begin(FIRST, 0, -1, fence=True, holder=ANN, asked_for=ANN)
    world.begin(SECOND, 1, 0)
    world.land(0, ANN, 1)
    world.land(1, BOB)
    assert not world.failures


def test_a_refused_append_in_the_log(world: World) -> None:
    world.begin(FIRST, 0, -1)
    late, early = world.carry(ANN, 9), world.carry(ANN, 9)
    world.checks.refused(late, 1)
    assert not world.failures
    world.checks.landed(PARTITION, 0, late)
    assert "was refused by number 1 and is in the log" in world.failures[0]
    world.failures.clear()
    world.checks.landed(PARTITION, 1, early)
    world.failures.clear()
    world.checks.refused(early, 1)
    assert "and in the log" in world.failure


@pytest.mark.parametrize("number", [1, NO_WRITE_SESSION])
def test_an_append_that_is_refused_wrongly(world: World, number: int) -> None:
    world.begin(FIRST, 0, -1)
    world.checks.refused(world.carry(ANN, number), 1)
    assert "is refused by number 1" in world.failure


def test_a_holder_that_is_refused(world: World) -> None:
    world.begin(FIRST, 0, -1, fence=True, holder=ANN, asked_for=ANN)
    world.checks.refused(world.carry(ANN, 1), 1)
    assert "is refused by number 1, which is held by 7" in world.failure


def test_one_number_twice(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(SECOND, 1, 5, number=1)
    assert any("has begun twice" in failure for failure in world.failures)


def test_one_number_for_two_fences(world: World) -> None:
    world.begin(FIRST, 0, -1, fence=True)
    world.checks.fenced(PARTITION, -1, 1, "ann")
    world.checks.fenced(PARTITION, -1, 1, "bob")
    assert "and so is ann" in world.failure


def test_numbers_in_another_order_than_the_log(world: World) -> None:
    world.begin(FIRST, 4, 10)
    world.begin(SECOND, 2, 12)
    assert "not in the order of the log" in world.failure


def test_an_owner_that_hears_late_may_have_a_smaller_number(world: World) -> None:
    world.begin(SECOND, 4, 10)
    world.begin(FIRST, 2, 10)
    assert not world.failures


def test_a_number_that_is_raised_for_nothing(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(FIRST, 1, 0)
    assert "nobody asked, nor came between" in world.failure


@pytest.mark.parametrize("change", ["gap", "generation"])
def test_a_number_is_raised_when_somebody_may_have_come_between(world: World, change: str) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(FIRST, 2 if change == "gap" else 1, 0, generation=2 if change == "generation" else 1)
    assert not world.failures


def test_a_number_that_is_kept_although_another_owner_came_between(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(SECOND, 1, 0)
    world.begin(FIRST, 2, 0, number=1)
    assert "another owner came between" in world.failure


def test_a_number_that_is_kept_over_a_generation(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(FIRST, 1, 0, number=1, generation=2)
    assert "its generation is another one" in world.failure


def test_a_fence_that_raises_nothing(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(FIRST, 1, 0, number=1, fence=True)
    assert "has not raised number 1" in world.failure


def test_a_number_that_comes_from_elsewhere(world: World) -> None:
    world.begin(FIRST, 5, 0, number=2)
    assert "is not derived from it" in world.failure


def test_exclusivity_that_nobody_asked_for(world: World) -> None:
    world.begin(FIRST, 0, -1, holder=ANN)
    assert "held by 7; exclusivity was asked for None" in world.failure


def test_a_holder_that_changes_under_one_number(world: World) -> None:
    world.begin(FIRST, 0, -1, fence=True, holder=ANN, asked_for=ANN)
    world.begin(FIRST, 1, 0, number=1)
    assert "was held by 7, and is by None" in world.failure


def test_a_store_session_that_too_few_storages_know(world: World) -> None:
    world.record(0, storages=1)
    world.checks.begun(FIRST, PARTITION, Opened(0, 1), -1, (-1, None), (1, None), (False, None))
    assert "['storage-0'] alone know of it" in world.failure


def test_a_fence_that_no_storage_knows_of(world: World) -> None:
    world.checks.fenced(PARTITION, 3, 1, "ann")
    assert "is known to [] alone" in world.failures[0]


def test_a_fence_in_another_session_than_expected(world: World) -> None:
    world.begin(FIRST, 0, -1)
    world.begin(FIRST, 1, 0, fence=True)
    world.begin(FIRST, 2, 0, fence=True)
    world.checks.fenced(PARTITION, 0, 2, "ann", 1)
    assert not world.failures
    world.checks.fenced(PARTITION, 0, 3, "bob", 1)
    assert "had asked to follow 1; that owner was at [2]" in world.failure


def test_a_client_that_sends_under_a_number_that_it_knows_to_be_over(world: World) -> None:
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 1), 4)
    world.checks.client_told(ANN, PARTITION, 5)
    world.checks.client_sends(ReqId.of(BOB, 1, PARTITION, 1), 4)
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION + 1, 1), 4)
    assert not world.failures
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 3), 4)
    assert "its client has heard of 5" in world.failure


def test_a_client_takes_another_number_for_its_application_only(world: World) -> None:
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 1), 4)
    world.checks.client_asks(ANN, PARTITION)
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 2), 5)
    world.checks.client_asked(ANN, PARTITION, 6)
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 3), 6)
    assert not world.failures
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 4), 7)
    assert "sent under number 7, for which nobody has asked; it had 6" in world.failure


def test_what_a_client_has_asked_for_may_be_over_when_it_comes(world: World) -> None:
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 1), 4)
    world.checks.client_asks(ANN, PARTITION)
    world.checks.client_told(ANN, PARTITION, 6)
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 2), 5)
    world.checks.client_asked(ANN, PARTITION, 5)
    assert not world.failures
    world.checks.client_told(ANN, PARTITION, 6)
    world.checks.client_sends(ReqId.of(ANN, 1, PARTITION, 3), 5)
    assert "its client has heard of 6" in world.failure


def test_a_client_asks_for_an_exclusive_session_once(world: World) -> None:
    world.checks.client_promotes(ANN, PARTITION, NO_WRITE_SESSION)
    world.checks.client_asks(ANN, PARTITION)
    world.checks.client_promotes(ANN, PARTITION, 4)
    world.checks.client_asked(ANN, PARTITION, 5)
    assert not world.failures
    world.checks.client_promotes(ANN, PARTITION, 5)
    assert "again, after it had number 5" in world.failure
