"""What a store holds, and what is wrong with it."""

import pytest

from tests.unit.archive.records import KEY, PARTITION, MemoryStore, sealed
from waltz.archive.chain import Place, add_object
from waltz.archive.errors import ArchiveError
from waltz.archive.manifest import empty_page
from waltz.archive.verification import archived_clusters, archived_partitions, only_cluster, verify_partition

OTHER = KEY.__class__(int=KEY.int + 1)


async def filled() -> tuple[MemoryStore, Place]:
    store = MemoryStore()
    place = Place(store, KEY, PARTITION)
    page = empty_page(KEY, PARTITION)
    for number in range(3):
        page = await add_object(place, page, sealed(page.end, [b"data %d" % number] * 4), None, None)
    return store, place


async def test_a_whole_archive() -> None:
    store, place = await filled()
    store.objects["lost+found/0/x"] = b""
    left = sealed(12, [b"left"])
    await store.put(f"{place.folder}/{left.name}", left.data)
    found = await verify_partition(place)
    assert [each.end for each in found.ranges] == [4, 8, 12]
    assert found.problems == []
    assert found.uncounted == [str(left.name)]
    assert await archived_clusters(store) == [KEY]
    assert await archived_partitions(store, KEY) == [PARTITION]


async def test_damaged_and_missing_objects_are_named() -> None:
    store, place = await filled()
    ranges = (await verify_partition(place)).ranges
    damaged, missing = (place.object_path(each) for each in ranges[1:])
    store.objects[damaged] = store.objects[damaged][:-9] + b"x" + store.objects[damaged][-8:]
    del store.objects[missing]
    problems = (await verify_partition(place)).problems
    assert len(problems) == 2
    assert damaged in problems[0]
    assert missing in problems[1]


async def test_one_cluster_is_chosen() -> None:
    store = MemoryStore()
    with pytest.raises(ArchiveError, match="it is empty"):
        await only_cluster(store, None)
    store, _ = await filled()
    assert await only_cluster(store, None) == KEY
    with pytest.raises(ArchiveError, match=f"no transactions of cluster {OTHER}: it has {KEY}"):
        await only_cluster(store, OTHER)
    store.objects[f"{OTHER}/0/x"] = b""
    with pytest.raises(ArchiveError, match="give a key: it has"):
        await only_cluster(store, None)
    assert await only_cluster(store, OTHER) == OTHER
