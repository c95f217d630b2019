"""Snapshots whose objects are not what was saved."""

import asyncio
import functools
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.archive.records import MemoryStore
from tests.unit.table.snapshots.places import filled, place_in
from waltz.table.snapshots import writing
from waltz.table.snapshots.loading import verify
from waltz.table.snapshots.manifest import Manifest, encode_manifest
from waltz.table.snapshots.place import SnapshotPlace

pytest.importorskip("pyarrow")


@functools.cache
def snapshot() -> tuple[Manifest, dict[str, bytes]]:
    """The snapshot of a log with two transactions and ten rows, in three files, and all objects."""
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "GROUP_ROWS", 4)
        patch.setattr(writing, "FILE_BYTES", 1)
        (manifest,) = asyncio.run(filled(place_in(store), 2))
    assert len(store.objects) == 1 + len(manifest.files) == 4
    return manifest, store.objects


def place_with(objects: dict[str, bytes]) -> SnapshotPlace:
    store = MemoryStore()
    store.objects = objects
    return place_in(store)


@given(st.data())
def test_any_damage_of_any_object_is_found(data: st.DataObject) -> None:
    objects = dict(snapshot()[1])
    path = data.draw(st.sampled_from(sorted(objects)))
    whole = objects[path]
    at = data.draw(st.integers(0, len(whole) - 1))
    kind = data.draw(st.sampled_from(("changed", "truncated", "longer", "gone")))
    if kind == "gone":
        del objects[path]
    else:
        flipped = bytes([whole[at] ^ data.draw(st.integers(1, 255))])
        damaged = {"changed": whole[:at] + flipped + whole[at + 1 :], "truncated": whole[:at], "longer": whole + b"x"}
        objects[path] = damaged[kind]
    (problem,) = asyncio.run(verify(place_with(objects), 1))
    assert path in problem


def lies(manifest: Manifest) -> Iterator[tuple[Manifest, str]]:
    """What a manifest with a right checksum may say that its files do not."""
    one, other, *rest = manifest.files
    yield manifest._replace(tombstones=1), "counts 1 tombstones, and 0"
    yield manifest._replace(files=(other, one, *rest)), "not in the order of their keys"
    yield manifest._replace(files=(one, one, *rest), rows=manifest.rows + one.rows - other.rows), "not in the order"
    yield manifest._replace(files=(one._replace(rows=5), other, *rest), rows=manifest.rows + 1), "it has 4 rows"
    yield manifest._replace(files=(one._replace(size_bytes=5), other, *rest)), "and 5 were saved"


def test_files_that_are_not_those_of_the_manifest_are_refused() -> None:
    manifest, objects = snapshot()
    place = place_with(dict(objects))
    assert asyncio.run(verify(place, 1)) == []
    for lie, text in lies(manifest):
        lying = place_with(objects | {place.manifest_path(1): encode_manifest(lie)})
        (problem,) = asyncio.run(verify(lying, 1))
        assert text in problem
    early = encode_manifest(manifest._replace(applied=0))
    (problem,) = asyncio.run(verify(place_with(objects | {place.manifest_path(0): early}), 0))
    assert "rows of later transactions" in problem
