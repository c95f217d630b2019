"""Appends in one go, against their definition field by field."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.wire.strategies import INTS, LONGS
from waltz.common.checksum import checksum
from waltz.common.errors import ProtocolError
from waltz.common.ids import RUN_PART, ReqId
from waltz.common.wire import append_request, client_server
from waltz.common.wire.append_request import (
    APPEND_REQUEST_TYPE,
    AppendRequest,
    collect_appends,
    encode_append,
    has_valid_checksum,
    measure_append,
)
from waltz.common.wire.client_server import FeedRequest
from waltz.common.wire.frames import CLIENT_SERVER, Bounds, FrameSplitter
from waltz.common.wire.write_sessions import NO_WRITE_SESSION

VERSIONS = CLIENT_SERVER.versions
LOCKS = st.lists(INTS, max_size=3).map(tuple) | st.integers(0, 30).map(lambda count: tuple(range(count)))
COUNTS_AT = 25
HUGE = 1 << 31
ODD_COUNTS = [-(1 << 31), -2, -1, 0, 1, 2, 3, 1 << 16, 1 << 29, 1 << 30, (1 << 31) - 1]


def make(
    req_id: bytes,
    mark: int,
    write: tuple[int, ...],
    read: tuple[int, ...],
    append: tuple[int, ...],
    header: int,
    body: bytes,
) -> AppendRequest:
    header_again, size = struct.unpack_from(">ii", body)
    assert header_again == header
    assert len(body) == size + 12
    (checksum_found,) = struct.unpack_from(">i", body, 8 + size)
    return AppendRequest(req_id, mark, write, read, append, header, body[8 : 8 + size], checksum_found)


@st.composite
def append_requests(draw: st.DrawFn, version: int) -> AppendRequest:
    data = draw(st.binary(max_size=20)) * draw(st.sampled_from([1, 1, 1, 300]))
    return AppendRequest(
        ReqId.of(draw(INTS), draw(st.integers(0, 1)), draw(st.integers(0, 1)), draw(INTS)),
        draw(LONGS),
        draw(LOCKS),
        draw(LOCKS) if version >= 1 else (),
        draw(LOCKS) if version >= 2 else (),
        draw(INTS),
        data,
        checksum(data),
        draw(st.sampled_from([NO_WRITE_SESSION, NO_WRITE_SESSION, 1, 2]) | LONGS) if version >= 5 else NO_WRITE_SESSION,
    )


def packed(hashes: tuple[int, ...] = ()) -> bytes:
    """An array of locks as it travels."""
    return struct.pack(f">i{len(hashes)}i", len(hashes), *hashes)


def definition(version: int) -> Any:
    return append_request._DEFINITIONS[version]


def split(stream: bytes, version: int) -> tuple[bytes, Bounds]:
    return FrameSplitter(CLIENT_SERVER.magic, version).feed(stream)


def collect(
    buffer: bytes,
    frames: Iterator[tuple[int, int]],
    version: int,
    max_data_bytes: int = 1 << 31,
    max_locks: int = 1 << 31,
) -> tuple[dict[bytes, list[AppendRequest]], tuple[int, int] | None]:
    runs: dict[bytes, list[AppendRequest]] = {}
    ended_by = collect_appends(buffer, frames, version, make, runs, max_data_bytes=max_data_bytes, max_locks=max_locks)
    return runs, ended_by


def in_runs(requests: list[AppendRequest]) -> dict[bytes, list[AppendRequest]]:
    runs: dict[bytes, list[AppendRequest]] = {}
    for request in requests:
        session = (
            b"" if request.write_session == NO_WRITE_SESSION else request.write_session.to_bytes(8, "big", signed=True)
        )
        runs.setdefault(request.req_id[RUN_PART] + session, []).append(request._replace(write_session=NO_WRITE_SESSION))
    return runs


@given(st.sampled_from(VERSIONS), st.data())
def test_written_as_defined(version: int, data: st.DataObject) -> None:
    request = data.draw(append_requests(version))
    write_locks, read_locks, append_locks = map(packed, request[2:5])
    req_id, mark, _, _, _, header, content, *_, write_session = request
    frame = encode_append(version, req_id, mark, write_locks, read_locks, append_locks, header, content, write_session)
    assert frame == definition(version).encode(request)


@given(st.sampled_from(VERSIONS), st.data())
def test_read_as_defined_whatever_the_locks_of_the_one_before(version: int, data: st.DataObject) -> None:
    requests = data.draw(st.lists(append_requests(version), max_size=8))
    buffer, bounds = split(b"".join(definition(version).encode(request) for request in requests), version)
    runs, ended_by = collect(buffer, iter(bounds), version)
    assert ended_by is None
    assert runs == in_runs(requests)
    assert all(type(lock) is tuple for run in runs.values() for request in run for lock in request[2:5])
    assert list(runs) == list(in_runs(requests))


@st.composite
def damaged_payloads(draw: st.DrawFn, version: int) -> bytes:
    """A request some of whose bytes or counts are others, that is cut, or that goes on."""
    payload = bytearray(definition(version).encode(draw(append_requests(version)))[7:])
    for _ in range(draw(st.integers(0, 2))):
        payload[draw(st.integers(1, len(payload) - 1))] = draw(st.integers(0, 255))
    if draw(st.booleans()):
        position = COUNTS_AT + 4 * draw(st.integers(0, max(0, (len(payload) - COUNTS_AT) // 4 - 1)))
        payload[position : position + 4] = struct.pack(">i", draw(st.sampled_from(ODD_COUNTS)))
    if draw(st.booleans()):
        del payload[draw(st.integers(1, len(payload))) :]
    if draw(st.booleans()):
        payload += b"\xff" * draw(st.integers(1, 40))
    return bytes(payload)


@given(st.sampled_from(VERSIONS), st.data())
def test_refused_where_the_definition_refuses(version: int, data: st.DataObject) -> None:
    """Between requests that are in order, so that what is behind the damaged one could be taken for a part of it."""
    before = data.draw(st.lists(append_requests(version), max_size=2))
    damaged = data.draw(damaged_payloads(version))
    behind = data.draw(append_requests(version))
    payloads = [definition(version).encode(request)[7:] for request in before]
    payloads += [damaged, definition(version).encode(behind)[7:]]
    buffer = b"".join(payloads)
    bounds: Bounds = []
    for payload in payloads:
        start = bounds[-1][1] if bounds else 0
        bounds.append((start, start + len(payload)))
    start, end = bounds[-2]
    runs, ended_by = collect(buffer, iter(bounds), version)
    try:
        expected = definition(version).decode(buffer, start, end)
    except ProtocolError:
        assert ended_by == (start, end)
        assert runs == in_runs(before)
    else:
        assert ended_by is None
        assert runs == in_runs([*before, expected, behind])


@pytest.mark.parametrize("version", VERSIONS)
def test_every_cut_of_a_request_is_refused_without_reading_on(version: int) -> None:
    kinds = [(1, 2), (3,) if version >= 1 else (), (4, 5, 6) if version >= 2 else ()]
    write_locks, read_locks, append_locks = map(packed, kinds)
    frame = encode_append(version, bytes(16), 0, write_locks, read_locks, append_locks, 7, b"data")
    whole = frame[7:]
    assert collect(whole, iter([(0, len(whole))]), version)[1] is None
    for end in range(1, len(whole)):
        for buffer in (whole[:end], whole):
            # With the shape at hand, and without.
            for frames in ([(0, end)], [(0, len(whole)), (0, end)]):
                if frames[0][1] <= len(buffer):
                    assert collect(buffer, iter(frames), version)[1] == (0, end)


@given(st.sampled_from(VERSIONS), st.data(), st.integers(0, 20), st.integers(0, 9))
def test_what_is_beyond_the_limits_is_left(
    version: int, data: st.DataObject, max_data_bytes: int, max_locks: int
) -> None:
    requests = data.draw(st.lists(append_requests(version), max_size=5))
    buffer, bounds = split(b"".join(definition(version).encode(request) for request in requests), version)
    allowed = [len(request.data) <= max_data_bytes and sum(map(len, request[2:5])) <= max_locks for request in requests]
    first = allowed.index(False) if False in allowed else len(requests)
    runs, ended_by = collect(buffer, iter(bounds), version, max_data_bytes, max_locks)
    assert ended_by == (bounds[first] if first < len(bounds) else None)
    assert runs == in_runs(requests[:first])


@given(st.sampled_from(VERSIONS), st.data())
def test_measured_as_defined(version: int, data: st.DataObject) -> None:
    request = data.draw(append_requests(version))
    payload = definition(version).encode(request)[7:]
    buffer = b"before" + payload + b"behind"
    sizes = measure_append(buffer, 6, 6 + len(payload), version)
    assert sizes is not None
    assert sizes.lock_counts == tuple(map(len, request[2:5]))[: min(version, 2) + 1]
    assert buffer[sizes.data_start : sizes.data_end] == request.data
    assert has_valid_checksum(buffer, sizes)


@given(st.sampled_from(VERSIONS), st.data())
def test_whatever_is_read_was_measured(version: int, data: st.DataObject) -> None:
    """A request that the definition takes has sizes; of others at most what is in the frame is believed."""
    payload = data.draw(damaged_payloads(version))
    sizes = measure_append(payload, 0, len(payload), version)
    if sizes is None:
        with pytest.raises(ProtocolError):
            definition(version).decode(payload, 0, len(payload))
    else:
        assert 0 <= sizes.data_start <= sizes.data_end <= len(payload)
        assert 4 * sum(count for count in sizes.lock_counts if count > 0) <= len(payload)


@pytest.mark.parametrize("version", VERSIONS)
def test_it_ends_at_another_message(version: int) -> None:
    append = encode_append(version, bytes(16), 0, packed(), packed(), packed(), 7, b"")
    other = client_server.encode(FeedRequest(bytes(16), 0), version)
    buffer, bounds = split(append + other + append, version)
    frames = iter(bounds)
    assert collect(buffer, frames, version)[1] == bounds[1]
    runs, ended_by = collect(buffer, frames, version)
    assert ended_by is None
    assert sum(map(len, runs.values())) == 1


def test_the_type_byte_is_that_of_the_catalogue() -> None:
    frame = client_server.encode(AppendRequest(bytes(16), 0, (), (), (), 0, b"", 0), 5)
    assert frame[7] == APPEND_REQUEST_TYPE


def test_a_limit_of_no_locks() -> None:
    frame = encode_append(5, bytes(16), 0, packed((1,)), packed(), packed(), 7, b"")
    assert collect(frame, iter([(7, len(frame))]), 5, max_locks=0) == ({}, (7, len(frame)))
