"""A cluster with a storage node that holds nothing yet."""

from waltz.common.zk.ensure import StorageAddress, ensure_cluster
from waltz.common.zk.store_admin import add_storage_node
from waltz.local.cluster import CLUSTER_NAME, LocalCluster
from waltz.local.layout import NODE_HOST, ROOT


class SpareCluster(LocalCluster):
    """The last storage is there to take the replicas of the first one, in whose group it is."""

    async def _create(self) -> None:
        *holding, spare = self.layout.storages
        zookeeper = await self.zookeeper()
        try:
            storages = [StorageAddress(NODE_HOST, node.port, node.admin_port) for node in holding]
            await ensure_cluster(zookeeper, ROOT, CLUSTER_NAME, self.layout.partitions, storages)
            await add_storage_node(zookeeper, ROOT, spare.connect_string, 1, spare.admin_port)
        finally:
            await zookeeper.close()
