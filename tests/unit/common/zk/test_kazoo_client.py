"""When the face says that the session has ended, whatever kazoo says. Everything else runs against a real ensemble."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KazooState

from waltz.common.zk import kazoo_client
from waltz.common.zk.client import State
from waltz.common.zk.kazoo_client import KazooZooKeeper

TIMEOUT_S = 30.0


class Clock:
    """In place of the module: the time on command."""

    now_s = 1000.0

    def monotonic(self) -> float:
        return self.now_s


class Result:
    def __init__(self) -> None:
        self.error: Exception | None = None
        self._callback: Callable[[Result], None] | None = None

    def rawlink(self, callback: "Callable[[Result], None]") -> None:
        self._callback = callback

    def get_nowait(self) -> None:
        if self.error is not None:
            raise self.error

    def answer(self, error: Exception | None = None) -> None:
        self.error = error
        assert self._callback is not None
        self._callback(self)


class Kazoo:
    """In place of kazoo's client."""

    def __init__(self, **settings: object) -> None:
        self.client_id = (7, b"")
        self.asked: list[Result] = []
        self.say: Callable[[str], None]

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.say = listener

    def start_async(self) -> None:
        self.say(KazooState.CONNECTED)

    def exists_async(self, path: str, watch: object = None) -> Result:
        self.asked.append(Result())
        return self.asked[-1]

    def stop(self) -> None: ...

    def close(self) -> None: ...


class Setup:
    def __init__(self, zookeeper: KazooZooKeeper, clock: Clock, kazoo: Kazoo) -> None:
        self.zookeeper = zookeeper
        self.clock = clock
        self.kazoo = kazoo
        self.told: list[State] = []
        zookeeper.add_listener(self.told.append)

    async def says(self, state: str) -> None:
        self.kazoo.say(state)
        await self.turns()

    async def turns(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def look(self) -> None:
        """What the timer does."""
        self.zookeeper._look()
        await self.turns()


@pytest.fixture
async def setup(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Setup]:
    clock = Clock()
    monkeypatch.setattr(kazoo_client, "time", clock)
    monkeypatch.setattr(kazoo_client, "KazooClient", Kazoo)
    zookeeper = await KazooZooKeeper.open(
        "localhost:1", session_timeout_s=TIMEOUT_S, connect_timeout_s=60, operation_timeout_s=1
    )
    kazoo = zookeeper._client
    assert isinstance(kazoo, Kazoo)
    yield Setup(zookeeper, clock, kazoo)
    await zookeeper.close()


async def test_a_session_without_a_connection_is_lost_when_its_time_is_over(setup: Setup) -> None:
    setup.clock.now_s += 10
    await setup.says(KazooState.SUSPENDED)
    setup.clock.now_s += 19
    await setup.look()
    assert setup.told == [State.SUSPENDED]
    setup.clock.now_s += 1
    await setup.look()
    assert setup.told == [State.SUSPENDED, State.LOST]
    assert setup.zookeeper.session_id is None
    await setup.says(KazooState.LOST)
    setup.kazoo.client_id = (8, b"")
    await setup.says(KazooState.CONNECTED)
    assert setup.told == [State.SUSPENDED, State.LOST, State.CONNECTED], "nothing is told twice"
    assert setup.zookeeper.session_id == 8


async def test_a_process_that_stood_still_finds_out_before_it_acts_on_the_state(setup: Setup) -> None:
    setup.clock.now_s += TIMEOUT_S
    assert setup.zookeeper.state is State.LOST
    assert setup.told == [State.LOST]


async def test_a_session_that_turns_out_to_live_is_connected_again(setup: Setup) -> None:
    setup.clock.now_s += TIMEOUT_S
    await setup.look()
    assert setup.told == [State.LOST]
    setup.kazoo.asked[-1].answer()
    await setup.turns()
    assert setup.told == [State.LOST, State.CONNECTED]
    assert setup.zookeeper.session_id == 7
    await setup.says(KazooState.SUSPENDED)
    assert setup.told[2:] == [State.SUSPENDED]


async def test_an_answer_that_waited_while_the_process_stood_still_proves_nothing(setup: Setup) -> None:
    setup.clock.now_s += 6
    await setup.look()
    (question,) = setup.kazoo.asked
    setup.clock.now_s += TIMEOUT_S
    question.answer()
    await setup.turns()
    assert setup.zookeeper.state is State.LOST


async def test_the_ensemble_is_asked_as_long_as_nothing_else_is(setup: Setup) -> None:
    for _ in range(20):
        setup.clock.now_s += 5
        await setup.look()
        setup.kazoo.asked[-1].answer()
        await setup.turns()
    assert len(setup.kazoo.asked) == 20
    assert setup.told == []
    reading = asyncio.create_task(setup.zookeeper.exists("/a"))
    await setup.turns()
    setup.kazoo.asked[-1].answer()
    assert await reading is None
    setup.clock.now_s += 4
    await setup.look()
    assert len(setup.kazoo.asked) == 21


async def test_a_question_that_fails_is_asked_again(setup: Setup) -> None:
    setup.clock.now_s += 5
    await setup.look()
    await setup.look()
    assert len(setup.kazoo.asked) == 1
    setup.kazoo.asked[0].answer(ConnectionLoss())
    setup.clock.now_s += 5
    await setup.turns()
    await setup.look()
    assert len(setup.kazoo.asked) == 2
    setup.clock.now_s += 20
    await setup.look()
    assert setup.told == [State.LOST]
