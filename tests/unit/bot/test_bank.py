"""The bank over a cluster in memory, and frauds in its log."""

import asyncio

import pytest

import waltz
from tests.unit.bot.places import Found, opened
from waltz.bot.bank import Bank, BankOptions
from waltz.bot.journal import Journal
from waltz.bot.opening import Opened
from waltz.bot.troubles import Troubles
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.wire.frames import CLIENT_SERVER
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.table.envelope import Batch, Row, encode

pytestmark = pytest.mark.timeout(60)

RICH_CENTS = 10**9
SMALL = BankOptions(accounts=10, opening_cents=RICH_CENTS, pause_s=0, audit_interval_s=0.02, fence_interval_s=0)


def bank_of(place: Opened, journal: Journal, troubles: Troubles, operations: int | None, **options: float) -> Bank:
    chosen = SMALL._replace(**options)  # type: ignore[arg-type] # fields of it
    return Bank(place.clients, place.tables, 0, journal, troubles, chosen, operations)


async def test_money_is_moved_and_none_is_lost() -> None:
    async with opened(clients=4) as (place, journal, troubles, found):
        bank = bank_of(place, journal, troubles, 200)
        await bank.work()
        assert found == []
        assert (bank.done, bank.refused) == (200, 0)
        assert bank.audit.transfers == 200
        assert sum(bank.audit.balances.values()) == 10 * RICH_CENTS
        assert bank.valid == bank.audit.balances
        assert bank.audits >= 1
        assert bank.counts["write sessions"] == 0


async def test_a_bank_that_is_not_open_is_not_audited() -> None:
    async with opened(clients=3) as (place, journal, troubles, found):
        await place.tables[0].put(b"bank/account/account-000003", b"17")
        bank = bank_of(place, journal, troubles, 1)
        await bank.check()
        assert (found, bank.audits) == ([], 0)


async def test_nobody_pays_what_he_has_not_got() -> None:
    async with opened(clients=3) as (place, journal, troubles, found):
        bank = bank_of(place, journal, troubles, 20, opening_cents=0)
        await bank.work()
        assert found == []
        assert (bank.done, bank.refused, bank.audit.transfers) == (20, 20, 0)


async def test_sessions_are_begun_and_tellers_go_on_in_them() -> None:
    async with opened(clients=3, sessions=True) as (place, journal, troubles, found):
        bank = bank_of(place, journal, troubles, 150, fence_interval_s=0.001)
        await bank.work()
        assert found == []
        assert bank.session_rounds.rounds > 3
        assert bank.counts["write sessions"] == bank.session_rounds.rounds
        assert bank.audit.transfers > 10


async def test_owners_that_know_no_sessions_are_told_of() -> None:
    versions = tuple(version for version in CLIENT_SERVER.versions if version < FIRST_WITH_WRITE_SESSION)
    async with (
        opened(MockDriver(), sessions=True) as (place, journal, troubles, _),
        waltz.connect(MockDriver(versions=versions), session_write=True) as client,
    ):
        bank = bank_of(place, journal, troubles, None)
        bank.session_rounds._clients = [client]
        assert await bank.session_rounds.begin(0) is None
        assert (bank.session_rounds.rounds, bank.session_rounds.number(0)) == (0, -1)
        assert bank.counts["write sessions"] == "not known to the owner"


async def test_lost_appends_and_broken_connections_are_no_deviations() -> None:
    driver = MockDriver()
    async with opened(driver, clients=4, sessions=True) as (place, journal, troubles, found):
        driver.max_delay_s = 0.001
        driver.fault_rate = 0.02
        bank = bank_of(place, journal, troubles, 150, fence_interval_s=0.05)
        working = asyncio.create_task(bank.work())
        while not working.done():
            driver.disconnect()
            await asyncio.wait([working], timeout=0.2)
        working.result()
        assert found == []
        assert bank.done == 150


async def audited(found: Found, place: Opened, journal: Journal, troubles: Troubles, *rows: Row) -> Found:
    """What an audit finds after somebody has put these rows into the log."""
    bank = bank_of(place, journal, troubles, 20)
    await bank.work()
    assert found == []
    await place.tables[0].batch(rows)
    await bank.check()
    return found


async def test_money_from_nowhere_is_found() -> None:
    async with opened(clients=3) as (place, journal, troubles, found):
        await audited(found, place, journal, troubles, Row(b"", b"bank/account/account-000003", b"1"))
        assert len(found) == 1
        assert found[0].startswith("bank/1: after transaction 21 all accounts together have ")


async def test_another_bank_in_the_same_partition_is_found() -> None:
    async with opened(clients=3) as (place, journal, troubles, found):
        await audited(found, place, journal, troubles, Row(b"", b"bank/teller/teller-0", b"other.1.-1"))
        assert found == ["bank/1: transaction 21 is of another bank: does it run in this partition?"]


async def test_an_account_that_was_deleted_is_found() -> None:
    async with opened(clients=3) as (place, journal, troubles, found):
        await audited(found, place, journal, troubles, Row(b"", b"bank/account/account-000003", None, tombstone=True))
        assert "a scan lacks 1 accounts: account-000003" in found[-1]


async def test_a_transfer_that_was_acknowledged_and_is_lost_is_found() -> None:
    partitions = MockServerPartition.create(1)
    async with opened(MockDriver(partitions), clients=3) as (place, journal, troubles, found):
        bank = bank_of(place, journal, troubles, 20)
        await bank.work()
        assert found == []
        lost = partitions[0].add(encode(Batch(1, [Row(b"", b"of nobody", b"")])))
        assert list(bank.audit.acknowledge("teller-0", bank._numbers[0] + 1, lost)) == []
        await bank.check()
        assert [text.partition(": ")[2] for text in found] == [
            f"transfer {bank._numbers[0] + 1} of teller-0 was acknowledged at {lost}, and is not there"
        ]
