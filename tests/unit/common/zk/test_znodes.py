"""Layouts of znode values against the bytes of the original."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import ProtocolError
from waltz.common.ids import Endpoint
from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.znodes import (
    EMPTY_PARTITION_METADATA,
    UNRESOLVED,
    ClusterParams,
    ConnectionMetadata,
    GroupDescriptor,
    PartitionAssignment,
    PartitionGeneration,
    PartitionMetadata,
    ReplicaAssignments,
    ReplicaId,
    ReplicaState,
    ServerDescriptor,
    StoreParams,
    decode_counter,
    encode_counter,
)

DATA = Path(__file__).parents[3] / "data"
Fields = dict[str, Any]

TYPES: dict[str, Any] = {
    "ClusterParams": ClusterParams,
    "PartitionAssignment": PartitionAssignment,
    "ServerDescriptor": ServerDescriptor,
    "StoreParams": StoreParams,
    "GroupDescriptor": GroupDescriptor,
    "ConnectionMetadata": ConnectionMetadata,
    "ReplicaAssignments": ReplicaAssignments,
    "PartitionMetadata": PartitionMetadata,
}


def replica_state(key: Fields, state: Fields) -> tuple[ReplicaId, ReplicaState]:
    replica_id = ReplicaId(key["partitionId"], key["storageNodeConnectString"])
    assert state["replicaId"] == key
    return replica_id, ReplicaState(replica_id, state["sessionId"], state["closingHighWaterMark"])


EXPECTED: dict[str, Callable[[Fields], object]] = {
    "ClusterParams": lambda f: ClusterParams(f["name"], f["numPartitions"]),
    "PartitionAssignment": lambda f: PartitionAssignment(
        f["cversion"],
        f["numPartitions"],
        {server: tuple(PartitionGeneration(*item) for item in owned) for server, owned in f["assignment"]},
    ),
    "ServerDescriptor": lambda f: ServerDescriptor(
        f["serverId"], Endpoint(f["host"], f["port"]), tuple(f["partitions"])
    ),
    "StoreParams": lambda f: StoreParams(UUID(f["key"]), f["numPartitions"]),
    "GroupDescriptor": lambda f: GroupDescriptor(dict(f["groups"])),
    "ConnectionMetadata": lambda f: ConnectionMetadata(dict(f["connections"])),
    "ReplicaAssignments": lambda f: ReplicaAssignments({name: tuple(ids) for name, ids in f["replicas"]}),
    "PartitionMetadata": lambda f: PartitionMetadata(
        f["generation"], f["sessionId"], dict(replica_state(*item) for item in f["replicaStates"])
    ),
}


def vectors() -> list[Fields]:
    lines = (DATA / "wire.jsonl").read_text().splitlines()
    return [vector for line in lines if (vector := json.loads(line))["codec"] == "zk"]


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["message"])
def test_vectors_of_the_original(vector: Fields) -> None:
    data = bytes.fromhex(vector["hex"])
    if vector["message"] == "Integer(ids)":
        value = decode_counter(data)
        assert [value] == list(vector["fields"].values())
        assert encode_counter(value) == data
        return
    value = TYPES[vector["message"]].decode(data)
    assert value == EXPECTED[vector["message"]](vector["fields"])
    # The vectors list maps in the order in which the original wrote them.
    assert value.encode() == data


def test_there_is_a_vector_of_every_layout() -> None:
    assert {vector["message"] for vector in vectors()} == {*TYPES, "Integer(ids)"}


def test_tree_of_the_original() -> None:
    nodes = {node["path"]: node["data_hex"] for node in json.loads((DATA / "zk-tree.json").read_text())}
    paths = ClusterPaths.of("/waltz_cluster")
    storages = {f"localhost:{port}" for port in (55280, 55290, 55300)}

    def data(path: str) -> bytes | None:
        value = nodes.pop(path)
        return None if value is None else bytes.fromhex(value)

    assert ClusterParams.decode(data(paths.root)) == ClusterParams("waltz_cluster", 2)
    assert decode_counter(data(paths.client_ids)) == 2
    assert decode_counter(data(paths.server_ids)) == 1
    assert PartitionAssignment.decode(data(paths.server_descriptors)) == PartitionAssignment(
        1, 2, {1: (PartitionGeneration(0, 1), PartitionGeneration(1, 1))}
    )
    assert ServerDescriptor.decode(data(paths.server_descriptor("s_0000000000"))) == ServerDescriptor(
        1, Endpoint("localhost", 55180)
    )
    assert StoreParams.decode(data(paths.store)) == StoreParams(UUID("9d5d426f-6c8e-4671-9906-67cc83c63ddf"), 2)
    assert GroupDescriptor.decode(data(paths.group)).groups.keys() == storages
    assert ConnectionMetadata.decode(data(paths.connection)).admin_ports["localhost:55300"] == 55301
    assignments = ReplicaAssignments.decode(data(paths.assignment))
    assert assignments.partitions == dict.fromkeys(storages, (0, 1))
    assert assignments.storages_of(1) == storages
    assert assignments.storages_of(2) == frozenset()
    assert assignments.storages_by_partition() == {0: storages, 1: storages}
    for partition_id in (0, 1):
        metadata = PartitionMetadata.decode(data(paths.partition(partition_id)))
        assert (metadata.generation, metadata.session_id) == (1, 0)
        replica_ids = {ReplicaId(partition_id, storage) for storage in storages}
        assert metadata.replicas == {r: ReplicaState(r, 0, UNRESOLVED) for r in replica_ids}
    assert {path: value for path, value in nodes.items() if value is not None} == {}


def test_documented_examples() -> None:
    assert PartitionAssignment(-1, 0, {}).encode().hex() == "03ffffffff0000000000000000"
    assert EMPTY_PARTITION_METADATA.encode().hex() == "01ffffffffffffffffffffffff00000000"
    assert GroupDescriptor({"s1:6000": 1}).encode().hex() == "0100000001000773313a3630303000000001"


@given(st.integers(-1, 3), st.sampled_from([UNRESOLVED, -1, 0, 7]), st.integers(-1, 3))
def test_a_member_of_a_session_is_unresolved_in_it(session_id: int, closing_mark: int, asked_id: int) -> None:
    state = ReplicaState(ReplicaId(0, "a:1"), session_id, closing_mark)
    assert state.is_member_of(asked_id) == (session_id == asked_id and closing_mark == UNRESOLVED)


@pytest.mark.parametrize("kind", TYPES.values(), ids=list(TYPES))
def test_null_empty_and_foreign_data(kind: Any) -> None:
    with pytest.raises(ProtocolError, match=r"^/x: .*the node has no value$"):
        kind.decode(None, "/x")
    with pytest.raises(ProtocolError, match="/x: .* 0 bytes end inside a field"):
        kind.decode(b"", "/x")
    with pytest.raises(ProtocolError, match=r"/x: .*(unknown version 238, expected \d+|magic number eeeeeeee)"):
        kind.decode(b"\xee" * 40, "/x")


@pytest.mark.parametrize("vector", vectors(), ids=lambda vector: vector["message"])
def test_data_that_ends_early(vector: Fields) -> None:
    data = bytes.fromhex(vector["hex"])
    decode = TYPES[vector["message"]].decode if vector["message"] in TYPES else decode_counter
    decode(data + b"trailing bytes are ignored")
    for size in range(len(data)):
        with pytest.raises(ProtocolError, match="end inside a field"):
            decode(data[:size])


@pytest.mark.parametrize(
    ("hex_data", "text"),
    [
        ("01ffffffff", "negative count -1"),
        ("017fffffff", "end inside a field"),
        ("01 00000001 0004 f09f9880 00000001", "no modified UTF-8"),
        ("01 00000001 0002 c328 00000001", "no modified UTF-8"),
    ],
)
def test_malformed_maps(hex_data: str, text: str) -> None:
    with pytest.raises(ProtocolError, match=text):
        GroupDescriptor.decode(bytes.fromhex(hex_data))


@given(st.text())
def test_strings_survive(text: str) -> None:
    params = ClusterParams(text, 3)
    assert ClusterParams.decode(params.encode()) == params


@given(st.binary(max_size=80), st.sampled_from(list(TYPES.values())))
def test_any_bytes_decode_or_are_refused(data: bytes, kind: Any) -> None:
    try:
        value = kind.decode(data)
    except ProtocolError:
        return
    assert kind.decode(value.encode()) == value


def test_string_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="65536 bytes"):
        ClusterParams("x" * 65536, 1).encode()
    assert ClusterParams.decode(ClusterParams("x" * 65535, 1).encode()).name == "x" * 65535
