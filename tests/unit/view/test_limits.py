"""Room for requests and their bodies."""

import pytest

from waltz.table.served.problems import Refused
from waltz.view.limits import Limits, Room


def test_room_is_given_back() -> None:
    room = Room(2, "things")
    with room.taken(), room.taken(), pytest.raises(Refused, match="too many things"), room.taken():
        pass
    assert room.used == 0
    with room.taken(2):
        pass


def test_bodies_share_memory() -> None:
    limits = Limits(1, 1, 800)
    assert limits.max_body_bytes == 100
    with pytest.raises(Refused, match="100 bytes") as refused, limits.body(101):
        pass
    assert refused.value.problem.status == 413
    taken = [limits.body(None) for _ in range(8)]
    for each in taken:
        each.__enter__()
    with pytest.raises(Refused) as refused, limits.body(1):
        pass
    assert refused.value.problem.status == 503
    for each in taken:
        each.__exit__(None, None, None)
    with limits.body(100):
        pass
