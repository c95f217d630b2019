"""What view nodes say of themselves, and the order in which clients try them."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.table.served.registration import MAX_BYTES, ViewNode, decode_view_node, in_order_of_choice

NODES = st.builds(
    ViewNode,
    st.sampled_from(["https://a.example:1", "http://b:2", "https://[::1]:65535"]),
    st.integers(-1, 1 << 62),
    st.none() | st.sampled_from(["x", "y"]),
)


@given(NODES)
def test_values_come_back(node: ViewNode) -> None:
    assert decode_view_node(node.encode()) == node


def test_later_fields_are_passed_over() -> None:
    assert decode_view_node(b'{"endpoint": "http://b:2", "applied": 1, "weight": 5}') == ViewNode("http://b:2", 1)


@pytest.mark.parametrize(
    "value",
    [
        *(None, b"", b"[]", b"5", b"\xff", b"[" * 4000, b'{"applied": 1}'),
        *(
            json.dumps({"endpoint": endpoint, "applied": 1}).encode()
            for endpoint in (
                *("", "b:2", "ftp://b:2", "http://b", "http://:2", "http://b:2/x", "http://b:2?x", "http://u@b:2"),
                *("http://b:x", "http://b:99999", 5, None, "http://b:2#x", "x" * MAX_BYTES),
            )
        ),
        b'{"endpoint": "http://b:2", "applied": true}',
        b'{"endpoint": "http://b:2", "applied": 1.5}',
        b'{"endpoint": "http://b:2", "applied": 1, "zone": 5}',
    ],
)
def test_other_values_are_no_nodes(value: bytes | None) -> None:
    assert decode_view_node(value) is None


@given(st.lists(NODES, max_size=6), st.none() | st.sampled_from(["x", "z"]), st.integers(0, 9))
def test_nodes_of_the_zone_come_first(nodes: list[ViewNode], zone: str | None, seed: int) -> None:
    ordered = in_order_of_choice(nodes, zone, random.Random(seed).shuffle)
    assert sorted(map(ViewNode.encode, ordered)) == sorted(map(ViewNode.encode, nodes))
    if zone is not None:
        here = [node.zone == zone for node in ordered]
        assert here == sorted(here, reverse=True)
