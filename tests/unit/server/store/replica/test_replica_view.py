"""What operators are told about the replicas of a partition."""

import random

from tests.unit.server.store.world import NAMES, Server, World, wait_until
from waltz.common.replica_states import ReplicaStatus
from waltz.server.store.interface import StoreOptions
from waltz.server.store.replica.replica_view import ReplicaView

A, B, C = NAMES
CURRENT, LAGGING, COPYING, BEHIND, BARRED, AWAY, REFUSED, OFFLINE = ReplicaStatus


def statuses(server: Server) -> list[ReplicaStatus]:
    return [view.status for view in server.log.replica_views]


async def test_replicas_are_away_while_no_session_runs() -> None:
    async with World() as world:
        server = await world.server()
        assert server.log.replica_views == tuple(ReplicaView(name, AWAY, None) for name in NAMES)
        await server.write(5)
        await wait_until(lambda: statuses(server) == [CURRENT] * 3)
        assert [view.storage for view in server.log.replica_views] == list(NAMES)
        await server.log.close()
        assert server.log.replica_views == tuple(ReplicaView(name, AWAY, None) for name in NAMES)


async def test_a_replica_goes_away_lags_and_is_current_again() -> None:
    options = StoreOptions(window_size_bytes=2000, ring_size_bytes=20_000, random_source=random.Random(0))
    async with World(options=options) as world:
        server = await world.server()
        await server.write(5)
        await wait_until(lambda: statuses(server) == [CURRENT] * 3)
        world.storages[C].stop()
        assert statuses(server) == [CURRENT, CURRENT, AWAY]
        world.storages[C].start()
        await wait_until(lambda: statuses(server) == [CURRENT, CURRENT, COPYING])
        await wait_until(lambda: statuses(server) == [CURRENT] * 3)
        world.storages[C].pause()
        for _ in range(40):
            await server.write(20, size_bytes=100)
        view = server.log.replica_views[-1]
        assert view.lag_transactions is not None
        assert view.lag_transactions > 700
        world.storages[C].resume()
        await wait_until(lambda: statuses(server) == [CURRENT, CURRENT, LAGGING])
        await wait_until(lambda: [view[1:] for view in server.log.replica_views] == [(CURRENT, 0)] * 3)


async def test_a_storage_that_must_not_be_taken_in_is_refused() -> None:
    async with World() as world:
        world.storages[C].partition.low_water_mark = 40
        server = await world.server()
        await server.write(1)
        await wait_until(lambda: statuses(server) == [CURRENT, CURRENT, REFUSED])


async def test_a_replica_whose_fate_is_unknown_is_barred() -> None:
    async with World() as world:
        world.storages[C].stop()
        server = await world.server()
        await server.write(30)
        world.storages[C].start()
        session = server.log._session
        assert session is not None
        replica = next(replica for replica in session._members if replica.storage == C)
        await wait_until(lambda: replica._client is not None)
        world.storages[C].pause()
        replica._change_unanswered = True
        world.storages[C].break_connections()
        await wait_until(lambda: statuses(server) == [CURRENT, CURRENT, BARRED])
        world.storages[C].resume()
        await wait_until(lambda: statuses(server) == [CURRENT] * 3)
