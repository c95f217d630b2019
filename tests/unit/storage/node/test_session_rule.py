import pytest

from tests.unit.storage.node_support import CUE, DISABLED, SE
from waltz.common.wire import storage as wire
from waltz.storage.disk.control_file import ASSIGNED, AVAILABLE, PartitionInfo
from waltz.storage.errors import wire_text
from waltz.storage.node.session_rule import StorageRequest, fence, is_offline, refusal

PARTITION = 7
PERSISTED = 4
CURRENT = 5


def max_id(session_id: int, *, offline: bool) -> StorageRequest:
    return wire.MaxTransactionIdRequest(session_id, 0, PARTITION, offline)


def read(session_id: int) -> StorageRequest:
    return wire.RecordRequest(session_id, 0, PARTITION, 0)


def refusal_text(message: StorageRequest, flags: int, *, in_service: bool = True) -> str | None:
    error = refusal(message, PartitionInfo(PERSISTED, 0, 0, flags, 1), CURRENT, in_service=in_service)
    return None if error is None else wire_text(error)


@pytest.mark.parametrize(
    ("message", "flags", "expected"),
    [
        (max_id(CURRENT, offline=False), AVAILABLE, SE + "partition 7 is not assigned to storage node."),
        (max_id(PERSISTED, offline=True), 0, SE + "partition 7 is not assigned to storage node."),
        (read(CURRENT), AVAILABLE, SE + "partition 7 is not assigned to storage node."),
        (
            max_id(PERSISTED, offline=True),
            ASSIGNED | AVAILABLE,
            SE + "cannot run offline recovery while partition is online",
        ),
        (
            max_id(CURRENT, offline=True),
            ASSIGNED,
            SE + "partition last session id has changed to 4, but request context contains 5",
        ),
        (max_id(PERSISTED, offline=True), ASSIGNED, None),
        (max_id(CURRENT, offline=False), ASSIGNED, DISABLED.format(7)),
        (read(CURRENT), ASSIGNED, DISABLED.format(7)),
        (read(PERSISTED), ASSIGNED, DISABLED.format(7)),
        (
            max_id(PERSISTED, offline=False),
            ASSIGNED | AVAILABLE,
            CUE + "session id has changed to 5, but request context contains 4",
        ),
        (read(PERSISTED), ASSIGNED | AVAILABLE, CUE + "session id has changed to 5, but request context contains 4"),
        (max_id(CURRENT, offline=False), ASSIGNED | AVAILABLE, None),
        (read(CURRENT), ASSIGNED | AVAILABLE, None),
    ],
)
def test_permission_checks_in_the_originals_order(message: StorageRequest, flags: int, expected: str | None) -> None:
    assert refusal_text(message, flags) == expected


@pytest.mark.parametrize("offline", [False, True])
def test_a_partition_out_of_service_answers_as_one_that_is_switched_off(offline: bool) -> None:
    for flags in (ASSIGNED, ASSIGNED | AVAILABLE):
        text = refusal_text(max_id(CURRENT, offline=offline), flags, in_service=False)
        assert text == DISABLED.format(7)


def test_the_fence_does_not_concern_offline_requests() -> None:
    assert fence(max_id(PERSISTED, offline=True), CURRENT) is None
    assert fence(max_id(CURRENT, offline=False), CURRENT) is None
    assert fence(max_id(PERSISTED, offline=False), CURRENT) is not None


def test_messages_without_the_flag_are_not_offline() -> None:
    assert not is_offline(read(CURRENT))
    assert not is_offline(wire.SuccessResponse(CURRENT, 0, PARTITION))
    assert is_offline(wire.AppendRequest(CURRENT, 0, PARTITION, [], True))
