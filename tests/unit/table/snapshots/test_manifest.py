"""Manifests as bytes, and those that are of another place."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.archive.records import KEY, PARTITION, MemoryStore
from tests.unit.table.snapshots.places import filled, place_in
from waltz.archive.documents import encode_document
from waltz.archive.errors import ArchiveDamagedError
from waltz.common.ids import LONG_MIN
from waltz.table.snapshots.manifest import Manifest, SavedFile, decode_manifest, encode_manifest, misfit

numbers = st.integers(0, 2**63 - 1)
files = st.builds(SavedFile, st.text(max_size=9), numbers, st.integers(0, 2**32 - 1), st.integers(0, 9))

GOLDEN = Manifest(
    KEY, PARTITION, 7, bytes(range(16)), None, 99, 3, 1, 2, LONG_MIN, 5, (SavedFile("a/b/0.parquet", 10, 11, 3),)
)
BYTES = (
    b"waltz-snapshot 1 "
    b'{crc}\n{"cluster_key":"6d9f4f2e-37a1-4c3d-9d5a-0b1c2d3e4f50","partition_id":3,"applied":7,'
    b'"request_id":"000102030405060708090a0b0c0d0e0f","properties_change":null,"max_body_bytes":99,"rows":3,'
    b'"tombstones":1,"skipped":2,"newest_ms":-9223372036854775808,"saved_at_ms":5,"files":[["a/b/0.parquet",10,11,3]]}\n'
)


@given(
    st.builds(
        Manifest,
        st.uuids(),
        numbers,
        numbers,
        st.binary(min_size=16, max_size=16),
        st.none() | numbers,
        numbers,
        st.just(0),
        numbers,
        numbers,
        st.integers(LONG_MIN, 2**63 - 1),
        numbers,
        st.lists(files, max_size=4).map(tuple),
    )
)
def test_a_manifest_is_read_as_it_was_written(manifest: Manifest) -> None:
    manifest = manifest._replace(rows=sum(each.rows for each in manifest.files))
    assert decode_manifest(encode_manifest(manifest), *manifest[:3], "it") == manifest
    assert manifest.size_bytes == sum(each.size_bytes for each in manifest.files)


def test_the_bytes_stay() -> None:
    data = encode_manifest(GOLDEN)
    head = len(b"waltz-snapshot 1 ")
    assert data == BYTES.replace(b"{crc}", data[head : head + 8])
    assert decode_manifest(data, KEY, PARTITION, 7, "it") == GOLDEN


@pytest.mark.parametrize(
    "document", [None, [], 7, {}, {"cluster_key": 3}, {"cluster_key": str(KEY), "request_id": "x"}]
)
def test_fields_that_are_none_of_a_manifest(document: object) -> None:
    data = encode_document(b"waltz-snapshot 1 ", document)
    with pytest.raises(ArchiveDamagedError, match="it is damaged: its fields are not those of a manifest"):
        decode_manifest(data, KEY, PARTITION, 7, "it")


def test_the_limit_of_bodies_has_to_be_the_same() -> None:
    assert misfit(99, GOLDEN) is None
    assert "maxDecompressedSizeInBytes was 99, and it is 98 now" in (misfit(98, GOLDEN) or "")


async def test_a_manifest_of_another_place_is_refused() -> None:
    pytest.importorskip("pyarrow")
    store = MemoryStore()
    place = place_in(store)
    (manifest,) = await filled(place, 1)

    async def refused(changed: Manifest, text: str) -> None:
        store.objects[place.manifest_path(0)] = encode_manifest(changed)
        with pytest.raises(ArchiveDamagedError, match=text):
            await place.read(0)

    await refused(manifest._replace(partition_id=PARTITION + 1), "copied to a wrong place")
    await refused(manifest._replace(cluster_key=UUID(int=1)), "copied to a wrong place")
    await refused(manifest._replace(applied=1), "does not name transaction 0")
    await refused(manifest._replace(request_id=b"12"), "does not name transaction 0")
    await refused(manifest._replace(rows=9), "do not hold as many rows")
    store.objects[place.manifest_path(0)] = encode_manifest(manifest)
    assert await place.read(0) == manifest
