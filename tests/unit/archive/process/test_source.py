"""Records from replicas: of ours and of the original, some of which lag, are damaged, or away."""

import pytest

from tests.unit.archive.records import MemoryStore
from tests.unit.common.cluster.conftest import ROOT
from tests.unit.common.cluster.fakes import KEY, SESSION, FakeCluster, damaged, make_log, storage_name
from waltz.archive.chain import Place
from waltz.archive.object_format import Limit, decode_object
from waltz.archive.process.copying import Gathered, gather_object
from waltz.archive.process.source import AnyReplica, SourceError, choose
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.wire.admin import RecordListRequest
from waltz.common.wire.frames import STORAGE_ADMIN
from waltz.common.zk.store_admin import read_store_params
from waltz.storage.disk.segment.segment_format import encode_record

LOG = make_log(0, 10)
LIMIT = Limit(100, 1 << 20)


async def no_limit(size_bytes: int) -> None:
    pass


async def gather(cluster: FakeCluster) -> Gathered:
    handle = ClusterHandle(cluster.zookeeper, ROOT, None)
    store = await read_store_params(cluster.zookeeper, ROOT)
    source = AnyReplica(handle, store, 0, tuple(sorted(await choose(handle, 0))))
    try:
        place = Place(MemoryStore(), KEY, 0)
        return await gather_object(place, source, 0, 10, LIMIT, no_limit, with_rest=True)
    finally:
        await source.close()


def check(gathered: Gathered) -> None:
    assert gathered.sealed is not None
    _, blocks = decode_object(gathered.sealed.data, KEY, 0, gathered.sealed.name, "it")
    assert b"".join(block.data for block in blocks) == b"".join(map(encode_record, LOG))


async def test_replicas_give_what_is_on_their_disks(cluster: FakeCluster) -> None:
    gathered = await gather(cluster)
    check(gathered)
    assert gathered.record_bytes == sum(len(encode_record(each)) for each in LOG) / 10
    assert [len(storage.requests) > 0 for storage in cluster.storages] == [True, False, False]


async def test_replicas_of_the_original_make_the_same_object(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = await gather(cluster)
    cluster.storages[0].requests.clear()
    monkeypatch.setattr("waltz.storage.remote.admin_client.STORAGE_ADMIN", STORAGE_ADMIN._replace(versions=(0,)))
    assert await gather(cluster) == whole
    assert {type(each) for storage in cluster.storages for each in storage.requests} == {RecordListRequest}


@pytest.mark.parametrize("records", [1, 3])
async def test_short_answers_make_the_same_object(cluster: FakeCluster, records: int) -> None:
    whole = await gather(cluster)
    cluster.storages[0].max_answer_records = records
    assert await gather(cluster) == whole


async def test_a_replica_that_lags_or_is_damaged_or_away_is_left_for_the_next(cluster: FakeCluster) -> None:
    cluster.storages[0].logs[0] = LOG[:4]
    cluster.storages[1].logs[0] = damaged(LOG, 7)
    check(await gather(cluster))
    assert cluster.storages[2].requests
    await cluster.storages[0].stop()
    check(await gather(cluster))


async def test_every_replica_s_reason_is_told(cluster: FakeCluster) -> None:
    for storage, log in zip(cluster.storages, (LOG[:9], damaged(LOG, 9), LOG[:2]), strict=True):
        storage.logs[0] = log
        storage.max_answer_records = 1
    with pytest.raises(SourceError, match="no replica delivers transaction 9 of partition 0: .*6000.*; .*; .*6002"):
        await gather(cluster)


async def test_replicas_outside_of_the_session_are_not_read(cluster: FakeCluster) -> None:
    handle = ClusterHandle(cluster.zookeeper, ROOT, None)
    await cluster.set_states(0, {storage_name(1): (SESSION, 5)})
    with pytest.raises(SourceError, match="no replica of partition 0 may serve a read: .*left behind"):
        await choose(handle, 0)
