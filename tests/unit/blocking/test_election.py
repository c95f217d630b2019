"""Elections for threads, in front of servers and ZooKeeper in memory."""

import threading

import pytest

import waltz
from waltz.client.mock import MockDriver, MockServerPartition

pytestmark = pytest.mark.timeout(60)


def test_one_thread_leads_after_the_other() -> None:
    partitions = MockServerPartition.create(1)
    with (
        waltz.blocking.connect(MockDriver(partitions), session_write=True) as one,
        waltz.blocking.connect(MockDriver(partitions), session_write=True) as two,
    ):
        seen, terms = list[waltz.Leader | None](), list[int]()

        def succeed() -> None:
            with two.election(0, "two").campaign() as leadership:
                terms.append(leadership.term)
                two.append(0, b"two")

        observation = two.election(0).observe()
        seen.append(next(observation))
        with one.election(0, "one").campaign() as leadership:
            seen.append(next(observation))
            successor = threading.Thread(target=succeed)
            successor.start()
            one.append(0, b"one")
        observation.close()
        successor.join()
        assert seen == [None, ("one", leadership.term)]
        assert terms[0] > leadership.term
    assert [record.data for record in partitions[0].transactions] == [b"one", b"two"]
