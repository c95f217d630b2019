"""Clients and numbers under which they may append: every case of the table."""

import itertools

import pytest

from waltz.common.wire.write_sessions import NO_WRITE_SESSION, SessionFlag
from waltz.server.partition.write_session import WriteSession

ME, OTHER = 7, 8


@pytest.mark.parametrize(
    ("holder", "number", "admitted"),
    [
        (None, 6, True),
        (None, 5, False),
        (None, 7, False),
        (None, NO_WRITE_SESSION, True),
        (ME, 6, True),
        (ME, 5, False),
        (ME, NO_WRITE_SESSION, False),
        (OTHER, 6, False),
        (OTHER, 5, False),
        (OTHER, NO_WRITE_SESSION, False),
    ],
)
def test_admission(holder: int | None, number: int, admitted: bool) -> None:
    session = WriteSession()
    session.begin(5, holder)
    assert session.number == 6
    assert session.admits(ME, number) is admitted


def test_the_first_number_is_positive() -> None:
    session = WriteSession()
    assert session.number == NO_WRITE_SESSION
    session.begin(0)
    assert session.number == 1


def test_a_new_session_ends_exclusivity() -> None:
    session = WriteSession()
    session.begin(1, ME)
    session.begin(2)
    assert session.holder is None
    assert session.admits(OTHER, 3)


@pytest.mark.parametrize(
    ("holder", "flags", "open_to_me"),
    [
        (None, SessionFlag(0), True),
        (ME, SessionFlag.EXCLUSIVE | SessionFlag.HELD_BY_YOU, True),
        (OTHER, SessionFlag.EXCLUSIVE, False),
    ],
)
def test_what_clients_are_told(holder: int | None, flags: SessionFlag, open_to_me: bool) -> None:
    session = WriteSession()
    session.begin(1, holder)
    assert session.flags(ME) == flags
    assert session.is_open_to(ME) is open_to_me


def test_only_one_number_and_client_write_to_an_exclusive_session() -> None:
    session = WriteSession()
    session.begin(1, ME)
    admitted = [
        (client, number)
        for client, number in itertools.product((ME, OTHER, None), (NO_WRITE_SESSION, 0, 1, 2, 3))
        if session.admits(client, number)
    ]
    assert admitted == [(ME, 2)]
