"""Messages about times between servers and storages, byte for byte: nobody else speaks them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.strategies import INTS, LONGS, damaged
from waltz.common.errors import ProtocolError
from waltz.common.wire import storage, storage_version1
from waltz.common.wire.storage_times import (
    CommittedNotice,
    CommitTime,
    EnterTimesRequest,
    PartitionCommitted,
    StorageTimeMessage,
    TimeEntryRequest,
    TimeEntryResponse,
    TimeListRequest,
    TimeListResponse,
    TimeQuestion,
    decode_notice,
)

HEAD = "0000000000000005" + "0000000000000009" + "00000001"
GOLDEN: list[tuple[StorageTimeMessage, str]] = [
    (
        CommittedNotice(-1, -1, -1, 1_700_000_000_000, [PartitionCommitted(5, 1, 42)]),
        "53000100000035" + "14" + "ff" * 20 + "0000018bcfe56800" + "00000001" + "0000000000000005" + "00000001"
        "000000000000002a",
    ),
    (
        TimeEntryRequest(5, 9, 1, TimeQuestion.LAST_AT, 1_700_000_000_000),
        "53000100000021" + "15" + HEAD + "00000000" + "0000018bcfe56800",
    ),
    (
        TimeEntryRequest(5, 9, 1, TimeQuestion.FIRST_COVERING, 42),
        "53000100000021" + "15" + HEAD + "00000001" + "000000000000002a",
    ),
    (
        TimeEntryResponse(5, 9, 1, 42, 1_700_000_000_000),
        "53000100000025" + "16" + HEAD + "000000000000002a" + "0000018bcfe56800",
    ),
    (TimeListRequest(5, 9, 1, 42, 4096), "53000100000021" + "17" + HEAD + "000000000000002a" + "00001000"),
    (TimeListResponse(5, 9, 1, []), "53000100000019" + "18" + HEAD + "00000000"),
    (
        TimeListResponse(5, 9, 1, [CommitTime(42, 1_700_000_000_000)]),
        "53000100000029" + "18" + HEAD + "00000001" + "000000000000002a" + "0000018bcfe56800",
    ),
    (
        EnterTimesRequest(5, 9, 1, True, [CommitTime(42, 1_700_000_000_000)]),
        "5300010000002a" + "19" + HEAD + "01" + "00000001" + "000000000000002a" + "0000018bcfe56800",
    ),
]
NOTICES = st.builds(
    CommittedNotice,
    LONGS,
    LONGS,
    INTS,
    LONGS,
    st.lists(st.builds(PartitionCommitted, LONGS, INTS, LONGS), max_size=4),
)


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN)
def test_the_bytes_are_frozen(message: StorageTimeMessage, hex_frame: str) -> None:
    frame = bytes.fromhex(hex_frame)
    assert storage_version1.encode(message, 1) == frame
    assert storage_version1.decode(frame, 7, len(frame), 1) == message
    with pytest.raises(ProtocolError, match=f"no {type(message).__name__}"):
        storage_version1.encode(message, storage.VERSION)


@pytest.mark.parametrize(("message", "hex_frame"), GOLDEN[-2:])
def test_lists_are_decoded_whole_or_refused(message: StorageTimeMessage, hex_frame: str) -> None:
    frame = bytes.fromhex(hex_frame)
    for end in range(8, len(frame)):
        with pytest.raises(ProtocolError):
            storage_version1.decode(frame, 7, end, 1)
    for count in ("7fffffff", "ffffffff"):
        hostile = frame[:-20] + bytes.fromhex(count) + frame[-16:]
        with pytest.raises(ProtocolError):
            storage_version1.decode(hostile, 7, len(hostile), 1)


def quickly(frame: bytes) -> tuple[int, list[tuple[int, int, int]]]:
    time_ms, entries = decode_notice(frame, 7, len(frame))
    return time_ms, list(entries)


@given(NOTICES, st.data())
def test_damaged_notices_are_decoded_or_refused(notice: CommittedNotice, data: st.DataObject) -> None:
    frame = storage_version1.encode(notice, 1)
    assert storage_version1.decode(frame, 7, len(frame), 1) == notice
    assert quickly(frame) == notice[3:]
    frame = data.draw(damaged(frame))
    try:
        decoded = storage_version1.decode(frame, 7, len(frame), 1)
    except ProtocolError:
        if frame[7:8] == b"\x14":
            with pytest.raises(ProtocolError):
                decode_notice(frame, 7, len(frame))
        return
    if isinstance(decoded, CommittedNotice):
        assert quickly(frame) == decoded[3:]
    assert storage_version1.encode(decoded, 1)[7:] == frame[7:]
