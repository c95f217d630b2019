"""Reading appends off the wire: whatever the codec says, in less time."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.checksum import checksum
from waltz.common.errors import ProtocolError
from waltz.common.ids import RUN_PART, ReqId
from waltz.common.records import Record, encode_records
from waltz.common.wire.append_request import AppendRequest, session_of_run
from waltz.common.wire.client_server import FeedRequest, decode, encode
from waltz.common.wire.frames import CLIENT_SERVER, FrameSplitter
from waltz.common.wire.version5 import AppendFailure
from waltz.common.wire.write_sessions import NO_WRITE_SESSION
from waltz.server.requests.appends import AppendCall, AppendLimits, Runs, Unacceptable, take_appends
from waltz.server.store.interface import encode_appends

LIMITS = AppendLimits(max_data_bytes=10_000, max_locks=9)

ints = st.integers(-(1 << 31), (1 << 31) - 1)
locks = st.lists(ints, max_size=3).map(tuple)


@st.composite
def append_requests(draw: st.DrawFn, version: int) -> AppendRequest:
    data = draw(st.binary(max_size=40)) * draw(st.sampled_from([1, 1, 1, 150]))
    req_id = ReqId.of(draw(ints), draw(st.integers(0, 1)), draw(st.integers(0, 2)), draw(ints))
    write, read, append = draw(locks), draw(locks), draw(locks)
    if draw(st.booleans()):
        read = append = ()
    mark = draw(st.integers(-(1 << 63), (1 << 63) - 1))
    return AppendRequest(
        req_id,
        mark,
        write,
        read if version >= 1 else (),
        append if version >= 2 else (),
        draw(ints),
        data,
        checksum(data),
    )


def split(frames: bytes, version: int) -> tuple[bytes, list[tuple[int, int]]]:
    return FrameSplitter(CLIENT_SERVER.magic, version).feed(frames)


def same(call: AppendCall, request: AppendRequest) -> bool:
    return request == AppendRequest(
        call.req_id,
        call.client_high_water_mark,
        call.write_locks,
        call.read_locks,
        call.append_locks,
        call.header,
        call.data,
        call.checksum,
    )


@given(st.sampled_from(CLIENT_SERVER.versions), st.data())
def test_every_append_is_read_as_the_codec_reads_it(version: int, data: st.DataObject) -> None:
    requests = data.draw(st.lists(append_requests(version), max_size=8))
    buffer, bounds = split(b"".join(encode(request, version) for request in requests), version)
    runs: Runs = {}
    assert take_appends(buffer, iter(bounds), version, LIMITS, runs) is None
    assert sum(map(len, runs.values())) == len(requests)
    for key, calls in runs.items():
        expected = [request for request in requests if request.req_id[RUN_PART] == key]
        assert all(same(call, request) for call, request in zip(calls, expected, strict=True))


@given(st.sampled_from(CLIENT_SERVER.versions), st.data())
def test_whatever_the_codec_refuses_is_refused(version: int, data: st.DataObject) -> None:
    """Flip, cut and lengthen: the outcome is that of the codec, be it an append that is in order by chance."""
    request = data.draw(append_requests(version))
    payload = bytearray(encode(request, version)[7:])
    for _ in range(data.draw(st.integers(1, 3))):
        payload[data.draw(st.integers(1, len(payload) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(payload[: data.draw(st.integers(1, len(payload)))]) + data.draw(st.sampled_from([b"", b"\xff" * 9]))
    runs: Runs = {}
    expected = outcome(lambda: decode(damaged, 0, len(damaged), version))
    found = outcome(lambda: take_appends(damaged, iter([(0, len(damaged))]), version, LIMITS, runs))
    if isinstance(expected, AppendRequest):
        assert found is None
        ((call,),) = runs.values()
        assert same(call, expected)
    else:
        assert isinstance(expected, str)
        assert found == expected or isinstance(found, Unacceptable)
        assert runs == {}


def outcome(function: Callable[[], object]) -> object:
    """What it returns, or the text of its error."""
    try:
        return function()
    except ProtocolError as error:
        return str(error)


def new_request(number: int, size: int = 5) -> AppendRequest:
    return AppendRequest(ReqId.of(1, 1, 0, number), -1, (number,), (), (), 7, bytes(size), checksum(bytes(size)))


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
def test_it_ends_at_another_message_and_goes_on_behind_it(version: int) -> None:
    frames = [encode(new_request(number), version) for number in range(3)]
    frames.insert(2, encode(FeedRequest(bytes(16), 0), version))
    buffer, bounds = split(b"".join(frames), version)
    rest = iter(bounds)
    runs: Runs = {}
    assert take_appends(buffer, rest, version, LIMITS, runs) == bounds[2]
    assert sum(map(len, runs.values())) == 2
    assert take_appends(buffer, rest, version, LIMITS, runs) is None
    assert sum(map(len, runs.values())) == 3


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
def test_a_large_append_is_told_and_what_follows_it_is_read(version: int) -> None:
    requests = [new_request(1, 20), new_request(2, 21), new_request(3, 20)]
    buffer, bounds = split(b"".join(encode(request, version) for request in requests), version)
    rest = iter(bounds)
    runs: Runs = {}
    large = take_appends(buffer, rest, version, AppendLimits(20, 10), runs)
    text = "a transaction of 21 bytes; server.maxTransactionSize is 20"
    assert large == Unacceptable(requests[1].req_id, AppendFailure.TOO_LARGE, text)
    assert take_appends(buffer, rest, version, AppendLimits(20, 10), runs) is None
    assert [call.req_id for calls in runs.values() for call in calls] == [requests[0].req_id, requests[2].req_id]


def test_appends_of_different_write_sessions_are_different_runs() -> None:
    sessions = (NO_WRITE_SESSION, 3, 3, 4, NO_WRITE_SESSION)
    requests = [new_request(number)._replace(write_session=session) for number, session in enumerate(sessions)]
    buffer, bounds = split(b"".join(encode(request, 5) for request in requests), 5)
    runs: Runs = {}
    assert take_appends(buffer, iter(bounds), 5, LIMITS, runs) is None
    found = {session_of_run(key): [call.req_id for call in run] for key, run in runs.items()}
    assert found == {
        session: [request.req_id for request in requests if request.write_session == session]
        for session in (NO_WRITE_SESSION, 3, 4)
    }


@given(st.lists(append_requests(4), max_size=5))
def test_records_are_encoded_as_the_codec_encodes_them(requests: list[AppendRequest]) -> None:
    buffer, bounds = split(b"".join(encode(request, 4) for request in requests), 4)
    runs: Runs = {}
    take_appends(buffer, iter(bounds), 4, LIMITS, runs)
    calls = [call for run in runs.values() for call in run]
    for number, call in enumerate(calls):
        call.transaction_id = number
    records = [Record(call.transaction_id, call.req_id, call.header, call.data, call.checksum) for call in calls]
    assert encode_appends(calls) == encode_records(records)


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
def test_too_many_locks_are_told_and_never_decoded(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waltz.server.requests.appends.decode", lambda *arguments: pytest.fail("decoded"))
    data = b"data"
    kinds = min(version, 2) + 1
    counts = [(1_000_000 if kind == kinds - 1 else 0) for kind in range(3)]
    locks = [tuple(range(count)) for count in counts]
    request = AppendRequest(ReqId.of(1, 1, 0, 1), -1, locks[0], locks[1], locks[2], 0, data, checksum(data))
    after = new_request(2)
    buffer, bounds = split(encode(request, version) + encode(after, version), version)
    rest = iter(bounds)
    found = take_appends(buffer, rest, version, LIMITS, {})
    text = "a transaction with 1000000 locks; server.maxLocksPerTransaction is 9"
    assert found == Unacceptable(request.req_id, AppendFailure.TOO_LARGE, text)
    runs: Runs = {}
    assert take_appends(buffer, rest, version, LIMITS, runs) is None
    assert [call.req_id for calls in runs.values() for call in calls] == [after.req_id]


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
@pytest.mark.parametrize("kind", range(3))
def test_a_null_lock_array_is_dropped_unless_the_rest_is_damaged(version: int, kind: int) -> None:
    if kind > version:
        return
    frame = bytearray(encode(new_request(1)._replace(write_locks=()), version))
    position = 7 + 25 + 4 * kind
    frame[position : position + 4] = struct.pack(">i", -1 - kind)
    buffer, bounds = split(bytes(frame), version)
    runs: Runs = {}
    found = take_appends(buffer, iter(bounds), version, LIMITS, runs)
    assert found == Unacceptable(new_request(1).req_id, None, "a lock array is null")
    assert runs == {}
    frame[-10 if version >= 5 else -2] ^= 1
    buffer, bounds = split(bytes(frame), version)
    with pytest.raises(ProtocolError):
        take_appends(buffer, iter(bounds), version, LIMITS, runs)


@pytest.mark.parametrize("version", CLIENT_SERVER.versions)
def test_an_abridged_append_is_too_large(version: int) -> None:
    req_id = ReqId.of(1, 1, 0, 1)
    found = take_appends(b"\x02" + req_id, iter([(0, 17)]), version, LIMITS, {})
    assert isinstance(found, Unacceptable)
    assert (found.req_id, found.failure) == (req_id, AppendFailure.TOO_LARGE)
