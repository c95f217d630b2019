"""Fences and administrative requests are noted for the audit log when they are done, or have failed."""

import asyncio

from tests.unit.rules import Only
from tests.unit.server.fakes import GENERATION, mount, req_id, take
from tests.unit.server.process.test_service import Setup, settle
from waltz.common.access import Action, Right
from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import AddPreferredPartitionRequest, RemovePreferredPartitionRequest
from waltz.common.wire.write_sessions import FenceOption, HeartbeatOption, HeartbeatRequest, LastTransactionIdRequest


async def test_preferences() -> None:
    rule = Only(*Right)
    setup = Setup(access=rule)
    link = setup.link(version=6)
    setup.service.received(link, AddPreferredPartitionRequest(req_id(1), (2, 3)))
    await settle()
    setup.cluster_error = WaltzError("planted")
    setup.service.received(link, RemovePreferredPartitionRequest(req_id(2), (2,)))
    await settle()
    failed = "the preferred partitions could not be changed"
    assert rule.actions == [
        Action("add preferred partitions", Right.ADMIN, (2, 3), "client:1"),
        Action("remove preferred partitions", Right.ADMIN, (2,), "client:1", failed),
    ]
    await setup.service.close()


async def test_fences() -> None:
    rule = Only(*Right)
    setup = Setup(access=rule)
    setup.service.set_partitions({0: GENERATION})
    log = setup.made[0].log
    log.open_session()
    link = setup.link(version=6)
    setup.service.received(link, mount(1, -1))
    setup.service.received(link, LastTransactionIdRequest(req_id(2), FenceOption(0), -1))
    assert rule.actions == []
    setup.service.received(link, LastTransactionIdRequest(req_id(3), FenceOption.FENCE, -1))
    log.begin_session(unbroken=True)
    assert rule.actions == [Action("begin a write session", Right.FENCE, [0], "client:1")]
    setup.service.received(link, HeartbeatRequest(req_id(4), HeartbeatOption.EXCLUSIVE))
    async with asyncio.timeout(60):
        while log.renewals != 2:
            await asyncio.sleep(0.01)
    log.begin_session(unbroken=True)
    setup.service.received(link, HeartbeatRequest(req_id(5), HeartbeatOption.EXCLUSIVE))  # its holder renews it
    assert rule.actions[1:] == [Action("begin an exclusive write session", Right.FENCE, [0], "client:1")]
    take(link)
    await setup.service.close()


async def test_a_fence_that_fails() -> None:
    rule = Only(*Right)
    setup = Setup(access=rule)
    setup.service.set_partitions({0: GENERATION})
    setup.made[0].log.open_session()
    link = setup.link(version=6)
    setup.service.received(link, mount(1, -1))
    setup.service.received(link, LastTransactionIdRequest(req_id(3), FenceOption.FENCE, -1))
    await setup.service.close()
    assert [(action.operation, action.error) for action in rule.actions] == [
        ("begin a write session", "no store session began")
    ]
