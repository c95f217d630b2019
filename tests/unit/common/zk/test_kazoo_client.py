"""When the face says that the session has ended, whatever kazoo says. Everything else runs against a real ensemble."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from kazoo.exceptions import AuthFailedError, ConnectionLoss
from kazoo.protocol.states import KazooState, KeeperState
from pydantic import SecretStr

from waltz.common.zk import kazoo_client
from waltz.common.zk.client import NotPermittedError, State
from waltz.common.zk.kazoo_client import KazooZooKeeper
from waltz.common.zk.protected import Login

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
        self.client_state = KeeperState.CONNECTED
        self.starts = 0
        self.asked: list[Result] = []
        self.say: Callable[[str], None]

    def add_listener(self, listener: Callable[[str], None]) -> None:
        self.say = listener

    def start_async(self) -> None:
        self.starts += 1
        self.client_state = KeeperState.CONNECTED
        self.say(KazooState.CONNECTED)

    def refuse_user(self) -> None:
        self.client_state = KeeperState.AUTH_FAILED
        self.say(KazooState.LOST)
        for each in self.asked:
            each.answer(AuthFailedError())

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


class WithUser:
    """A client with a user that is being opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kazoo = Kazoo()
        monkeypatch.setattr(kazoo_client, "KazooClient", lambda **_: self.kazoo)
        monkeypatch.setattr(kazoo_client, "_RECONNECT_MAX_DELAY_S", 0)
        opening = KazooZooKeeper.open(
            "localhost:1",
            session_timeout_s=TIMEOUT_S,
            connect_timeout_s=None,
            operation_timeout_s=1,
            login=Login("ops", SecretStr("secret"), "/waltz"),
        )
        self.opening = asyncio.ensure_future(opening)

    async def opened(self) -> Setup:
        await turns()
        self.kazoo.asked.pop().answer()
        return Setup(await self.opening, Clock(), self.kazoo)


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_with_a_user_the_first_answer_makes_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    with_user = WithUser(monkeypatch)
    await turns()
    assert not with_user.opening.done()
    setup = await with_user.opened()
    assert setup.zookeeper.state is State.CONNECTED
    await setup.says(KazooState.SUSPENDED)
    await setup.says(KazooState.CONNECTED)
    setup.kazoo.asked.pop().answer(ConnectionLoss())
    await setup.turns()
    assert setup.told == [State.SUSPENDED]
    await setup.says(KazooState.SUSPENDED)
    await setup.says(KazooState.CONNECTED)
    setup.kazoo.asked.pop().answer()
    await setup.turns()
    assert setup.told == [State.SUSPENDED, State.CONNECTED]
    await setup.zookeeper.close()


async def test_a_client_whose_user_is_refused_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    with_user = WithUser(monkeypatch)
    await turns()
    with_user.kazoo.refuse_user()
    with pytest.raises(NotPermittedError, match="ZooKeeper refuses user ops: the server takes no passwords"):
        await with_user.opening
    assert with_user.kazoo.starts == 1


async def test_an_open_client_whose_user_is_refused_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = await WithUser(monkeypatch).opened()
    connected = asyncio.Event()
    setup.zookeeper.add_listener(lambda state: connected.set() if state is State.CONNECTED else None)
    for starts in (2, 3):
        setup.kazoo.asked.clear()
        setup.kazoo.refuse_user()
        while not setup.kazoo.asked:
            await asyncio.sleep(0.001)
        assert setup.kazoo.starts == starts
        assert setup.zookeeper.state is State.LOST
    setup.kazoo.client_id = (8, b"")
    setup.kazoo.asked.pop().answer()
    await connected.wait()
    assert setup.told == [State.LOST, State.CONNECTED]
    assert setup.zookeeper.session_id == 8
    setup.kazoo.refuse_user()
    await setup.zookeeper.close()
    await turns()
    assert setup.kazoo.starts == 3, "a closed client does not start again"
