"""The valid connection among several of a client: the table of cases."""

import pytest

from tests.unit.server.fakes import channel_of, new_link
from waltz.server.partition.registrations import Registrations

SESSION = bytes(16)

CASES = [
    # case, old (generation, seqNum, number), new (generation, seqNum, number), whether the new one counts
    ("newer sequence number", (1, 0, 0), (1, 1, 1), True),
    ("older sequence number", (1, 5, 0), (1, 4, 1), False),
    ("newer generation", (1, 5, 0), (2, 5, 1), True),
    ("newer generation with a smaller sequence number", (1, 5, 0), (2, 0, 1), True),
    ("older generation with a larger sequence number", (2, 0, 0), (1, 9, 1), False),
    ("sequence numbers began anew, accepted later", (1, 0, 0), (1, 0, 1), True),
    ("sequence numbers began anew, accepted earlier", (1, 0, 1), (1, 0, 0), False),
]


@pytest.mark.parametrize(("old", "new", "counts"), [pytest.param(*case, id=name) for name, *case in CASES])
def test_two_connections(old: tuple[int, int, int], new: tuple[int, int, int], counts: bool) -> None:
    registrations = Registrations()
    first = new_link(seq_num=old[1], number=old[2])
    second = new_link(seq_num=new[1], number=new[2])
    assert registrations.register(first, old[0], SESSION)
    assert registrations.register(second, new[0], SESSION) is counts
    assert registrations.is_valid(second) is counts
    assert registrations.is_valid(first) is not counts


def test_mounting_again_on_the_same_connection_stays_valid() -> None:
    registrations, link = Registrations(), new_link()
    assert registrations.register(link, 2, SESSION)
    assert registrations.register(link, 2, SESSION)
    assert registrations.register(link, 3, SESSION)
    assert registrations.register(link, 1, SESSION), "an older generation does not invalidate the connection itself"


def test_an_unknown_connection_is_not_valid() -> None:
    assert not Registrations().is_valid(new_link())


def test_clients_do_not_disturb_each_other() -> None:
    registrations = Registrations()
    one, two = new_link(client_id=1), new_link(client_id=2)
    registrations.register(one, 1, SESSION)
    registrations.register(two, 1, SESSION)
    assert registrations.is_valid(one)
    assert registrations.is_valid(two)


def test_closing_the_old_connection_does_not_remove_the_new_one() -> None:
    registrations = Registrations()
    old, new = new_link(seq_num=0, number=0), new_link(seq_num=0, number=1)
    registrations.register(old, 1, SESSION)
    registrations.register(new, 1, SESSION)
    registrations.forget(old)
    assert registrations.is_valid(new)
    registrations.forget(new)
    assert not registrations.is_valid(new)


def test_a_closed_connection_wins_against_nobody() -> None:
    registrations = Registrations()
    old, new = new_link(seq_num=5, number=0), new_link(seq_num=0, number=1)
    registrations.register(old, 7, SESSION)
    channel_of(old).closed = True
    assert registrations.register(new, 1, SESSION)
    assert registrations.is_valid(new)
