"""``waltz zookeeper``: the cluster's description in ZooKeeper."""

import argparse

from waltz.cli.session import Nouns, Session, cluster_command, endpoint, noun, number, partition_ranges, port
from waltz.common.ids import LONG_MIN
from waltz.common.zk import store_admin
from waltz.common.zk.paths import ClusterPaths


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(
        nouns, "zookeeper", "describe the cluster in ZooKeeper: create it, add storage nodes, assign partitions"
    )
    parser = cluster_command(verbs, "create", "create the cluster's tree", _create)
    parser.add_argument("-n", "--name", required=True, help="name of the cluster")
    parser.add_argument(
        "-p", "--partitions", type=number(minimum=0), required=True, help="number of partitions, for ever"
    )
    parser = cluster_command(verbs, "delete", "delete the cluster's tree; all data becomes unreachable", _delete)
    parser.add_argument("-n", "--name", required=True, help="name of the cluster, as a safeguard")
    parser.add_argument("-f", "--force", action="store_true", help="delete it whatever its name is")
    cluster_command(verbs, "list", "print everything that ZooKeeper knows of the cluster", _list)
    cluster_command(verbs, "show-cluster-key", "print the cluster key", _show_cluster_key)
    parser = cluster_command(verbs, "add-storage-node", "make a storage node known", _add_storage_node)
    _storage_option(parser)
    parser.add_argument("-a", "--storage-admin-port", type=port, required=True, metavar="PORT")
    parser.add_argument("-g", "--group", type=number(), required=True, help="id of the storage group, e.g. a region")
    parser = cluster_command(verbs, "remove-storage-node", "forget a storage node without partitions", _remove)
    _storage_option(parser)
    parser = cluster_command(verbs, "assign-partition", "give a storage node partitions to hold", _assign)
    _storage_option(parser)
    _partition_option(parser)
    parser = cluster_command(verbs, "unassign-partition", "take partitions away from a storage node", _unassign)
    _storage_option(parser)
    _partition_option(parser)
    parser = cluster_command(verbs, "auto-assign", "deal all partitions out among the nodes of a group", _auto_assign)
    parser.add_argument("-g", "--group", type=number(), required=True)


def _storage_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--storage", type=endpoint, required=True, metavar="HOST:PORT", help="data port")


def _partition_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--partition", type=partition_ranges, required=True, help="e.g. 0-6,7,10-16")


async def _create(options: argparse.Namespace, session: Session) -> None:
    await store_admin.create_cluster(session.zookeeper, session.root, options.name, options.partitions)


async def _delete(options: argparse.Namespace, session: Session) -> None:
    await store_admin.delete_cluster(session.zookeeper, session.root, options.name, force=options.force)


async def _show_cluster_key(_options: argparse.Namespace, session: Session) -> None:
    print((await store_admin.read_store_params(session.zookeeper, session.root)).key)


async def _add_storage_node(options: argparse.Namespace, session: Session) -> None:
    await store_admin.add_storage_node(
        session.zookeeper, session.root, str(options.storage), options.group, options.storage_admin_port
    )


async def _remove(options: argparse.Namespace, session: Session) -> None:
    await store_admin.remove_storage_node(session.zookeeper, session.root, str(options.storage))


async def _assign(options: argparse.Namespace, session: Session) -> None:
    await store_admin.assign_partitions(session.zookeeper, session.root, str(options.storage), options.partition)


async def _unassign(options: argparse.Namespace, session: Session) -> None:
    await store_admin.unassign_partitions(session.zookeeper, session.root, str(options.storage), options.partition)


async def _auto_assign(options: argparse.Namespace, session: Session) -> None:
    await store_admin.auto_assign(session.zookeeper, session.root, options.group)


async def _list(_options: argparse.Namespace, session: Session) -> None:
    zookeeper, root = session.zookeeper, session.root
    paths = ClusterPaths.of(root)
    await store_admin.sync_cluster(zookeeper, root)  # operators wait with this for what others have changed
    params = await store_admin.read_cluster_params(zookeeper, root)
    print(f"cluster [{root}]:\n  name: {params.name}, numPartitions: {params.partition_count}")
    await _list_servers(session)
    store = await store_admin.read_store_params(zookeeper, root)
    print(f"store [{paths.store}]:\n  key: {store.key}, numPartitions: {store.partition_count}")
    groups = (await store_admin.read_groups(zookeeper, root)).groups
    replicas = (await store_admin.read_replica_assignments(zookeeper, root)).partitions
    print(f"store [{paths.assignment}] replica and group assignments:")
    for storage in sorted(replicas.keys() | groups.keys()):
        print(f"  {storage} = {list(replicas.get(storage, ()))}, GroupId: {groups.get(storage)}")
    print(f"store [{paths.connection}] connections:")
    for storage, admin_port in sorted((await store_admin.read_connections(zookeeper, root)).admin_ports.items()):
        print(f"  {storage} has admin port: {admin_port}")
    for partition_id in range(params.partition_count):
        await _list_replica_states(session, paths, partition_id)


async def _list_servers(session: Session) -> None:
    paths = ClusterPaths.of(session.root)
    descriptors = await store_admin.read_server_descriptors(session.zookeeper, session.root)
    print(f"server descriptors [{paths.server_descriptors}]:")
    for descriptor in descriptors:
        preferred = list(descriptor.preferred_partitions) or "*"
        print(f"  server: {descriptor.server_id}, endpoint: {descriptor.endpoint}, preferred partitions: {preferred}")
    assignment = await store_admin.read_partition_assignment(session.zookeeper, session.root)
    print(
        f"assignment metadata:\n  cversion: {assignment.cversion}, "
        f"endpoints: {len(descriptors)}, partitions: {assignment.partition_count}"
    )
    print("assignments:")
    for server_id, partitions in sorted(assignment.servers.items()):
        for partition_id, generation in sorted(partitions):
            print(f"  server: {server_id}, partition: {partition_id}, generation: {generation}")


async def _list_replica_states(session: Session, paths: ClusterPaths, partition_id: int) -> None:
    print(f"store [{paths.partition(partition_id)}] replica states:")
    metadata = await store_admin.read_partition_metadata(session.zookeeper, session.root, partition_id)
    if metadata is None:
        print("  No node found")
        return
    for replica_id, state in sorted(metadata.replicas.items()):
        mark = state.closing_high_water_mark
        print(
            f"  ReplicaId({replica_id.partition_id},{replica_id.connect_string}), SessionId: {state.session_id}, "
            f"closingHighWaterMark: {'UNRESOLVED' if mark == LONG_MIN else mark}"
        )
