import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.ids import Endpoint, ReqId

INTS = st.integers(-(1 << 31), (1 << 31) - 1)


@given(INTS, INTS, INTS, INTS)
def test_a_request_id_is_its_four_parts(client_id: int, generation: int, partition_id: int, seq_num: int) -> None:
    req_id = ReqId.of(client_id, generation, partition_id, seq_num)
    assert len(req_id) == ReqId.SIZE_BYTES
    assert (req_id.client_id, req_id.generation, req_id.partition_id, req_id.seq_num) == (
        client_id,
        generation,
        partition_id,
        seq_num,
    )
    assert ReqId(bytes(req_id)) == req_id


def test_a_request_id_equals_its_bytes() -> None:
    req_id = ReqId.of(1, 2, 3, -4)
    assert req_id == bytes.fromhex("00000001 00000002 00000003 fffffffc")
    assert {bytes(req_id): "found"}[req_id] == "found"
    assert str(req_id) == repr(req_id) == "ReqId(c:1,g:2,p:3,s:-4)"


@pytest.mark.parametrize("text", ["host:0", "host:65535", "127.0.0.1:80", "a.b-c:1"])
def test_endpoints_are_written_as_they_are_read(text: str) -> None:
    assert str(Endpoint.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "host", ":80", "host:", "host:65536", "host:-1", "host:x", "host:²", "::1:80", "a:b:1"]
)
def test_what_is_no_endpoint_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="not of the form host:port: ") as caught:
        Endpoint.parse(text)
    assert repr(text) in str(caught.value)
