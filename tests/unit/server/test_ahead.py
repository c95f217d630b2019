"""Clients that have applied more than the server knows of."""

import asyncio
from collections.abc import Sequence

import pytest

from tests.unit.server.fakes import feed, new_link
from waltz.server.ahead import AheadClients
from waltz.server.waiting import Pending


async def test_a_defect_while_proving_is_no_proof_and_nobody_waits_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    decided: list[tuple[Sequence[Pending], bool]] = []
    proofs = 0

    async def prove() -> bool:
        nonlocal proofs
        proofs += 1
        if proofs == 1:
            raise ArithmeticError("planted")
        return True

    clients = AheadClients("proof", prove, lambda pendings, proved: decided.append((pendings, proved)))
    first, second = (Pending(new_link(), feed(number, 5), number) for number in (1, 2))
    for pending in (first, second):
        clients.add(pending)
        for _ in range(10):
            await asyncio.sleep(0)
    assert decided == [([first], False), ([second], True)]
    assert "planted" in caplog.text
    await clients.close()
