"""Appends at the ids that their client has foreseen: by a model, and at a partition whose log loses some."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.fakes import PartitionSetup, append, mount, new_link, req_id, take
from waltz.common.errors import ProtocolError
from waltz.common.ids import SEQ_NUM_MASK
from waltz.common.wire.append_order import AppendOrderRequest
from waltz.common.wire.version5 import AppendFailed, AppendFailure
from waltz.server.partition.append_order import AppendOrders
from waltz.server.partition.partition import PartitionOptions
from waltz.server.requests.appends import AppendCall
from waltz.server.requests.link import ClientLink


@pytest.fixture
async def setup() -> PartitionSetup:
    made = PartitionSetup(3, PartitionOptions())
    made.partition.start()
    made.log.open_session()
    return made


def mounted(setup: PartitionSetup, client_id: int = 1) -> ClientLink:
    link = new_link(client_id, version=6)
    setup.partition.mount(link, mount(1, 2, client_id))
    take(link)
    return link


def out_of_order(link: ClientLink) -> list[bytes]:
    return [
        message.req_id
        for message in take(link)
        if isinstance(message, AppendFailed) and message.reason is AppendFailure.OUT_OF_ORDER
    ]


def at(number: int) -> AppendCall:
    """An append whose request has this number."""
    return append(number)


@given(st.integers(0, SEQ_NUM_MASK), st.lists(st.booleans(), max_size=30), st.integers(1, 5))
def test_what_is_admitted_is_a_beginning_of_what_was_sent(start: int, lost: list[bool], run: int) -> None:
    """Whatever gets lost on the way to the check, and however appends come together there."""
    orders, link = AppendOrders(), new_link()
    numbers = [(start + index) & SEQ_NUM_MASK for index in range(len(lost))]
    orders.set(link, AppendOrderRequest(req_id(start), 100))
    arriving = [at(number) for number, gone in zip(numbers, lost, strict=True) if not gone]
    log: list[AppendCall] = []
    for first in range(0, len(arriving), run):
        requests = arriving[first : first + run]
        log += requests[: orders.admitted_count(link, requests, 100 + len(log))]
    whole = lost.index(True) if True in lost else len(lost)
    assert [append.req_id for append in log] == [req_id(number) for number in numbers[:whole]]


async def test_a_lost_append_takes_all_behind_it_along(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.set_append_order(link, AppendOrderRequest(req_id(10), 3))
    setup.partition.append(link, [at(10), at(11)])
    setup.partition.append(link, [at(13), at(14)])
    assert len(setup.log.undecided) == 2
    assert out_of_order(link) == [req_id(13), req_id(14)]
    setup.partition.append(link, [at(12)])
    assert (len(setup.log.undecided), out_of_order(link)) == (3, [])
    assert setup.meter("out-of-order-append") == 2


async def test_what_the_storages_have_not_stored_takes_along_what_waited_behind_it(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.set_append_order(link, AppendOrderRequest(req_id(10), 3))
    setup.partition.append(link, [at(10), at(11)])
    setup.log.written = 1
    setup.log.end_session()
    setup.partition.append(link, [at(12)])
    setup.log.reopen(committed=0)
    assert setup.log.undecided == []
    assert out_of_order(link) == [req_id(11), req_id(12)]


async def test_locks_have_no_place_in_an_order(setup: PartitionSetup) -> None:
    link = mounted(setup)
    setup.partition.set_append_order(link, AppendOrderRequest(req_id(10), 3))
    setup.partition.append(link, [append(10, write=(1,)), at(11)])
    assert (setup.log.undecided, out_of_order(link)) == ([], [req_id(10), req_id(11)])


async def test_the_order_is_that_of_one_connection_until_its_next_mount(setup: PartitionSetup) -> None:
    link, other = mounted(setup), mounted(setup, client_id=2)
    setup.partition.set_append_order(link, AppendOrderRequest(req_id(10), 99))
    setup.partition.append(other, [append(5, client_id=2)])
    setup.partition.append(link, [at(10)])
    assert (len(setup.log.undecided), out_of_order(link)) == (1, [req_id(10)])
    setup.partition.mount(link, mount(2, 2, 1))
    setup.partition.append(link, [at(11)])
    assert (len(setup.log.undecided), out_of_order(link)) == (2, [])


async def test_a_connection_that_was_replaced_sets_no_order(setup: PartitionSetup) -> None:
    stranger = new_link(9, version=6)
    setup.partition.set_append_order(stranger, AppendOrderRequest(req_id(1), 0))
    link = mounted(setup)
    setup.partition.append(link, [at(10)])
    assert (len(setup.log.undecided), take(link)) == (1, [])


async def test_an_impossible_id_is_a_protocol_error(setup: PartitionSetup) -> None:
    with pytest.raises(ProtocolError, match="-1 is no id of a transaction"):
        setup.partition.set_append_order(mounted(setup), AppendOrderRequest(req_id(1), -1))
