"""``waltz zookeeper``: the cluster's description in ZooKeeper."""

import argparse

from waltz.cli import protecting
from waltz.cli.output import confirm, logger_option, show, yes_option
from waltz.cli.session import (
    Nouns,
    Session,
    cluster_command,
    endpoint,
    label_keys,
    noun,
    number,
    partition_ranges,
    port,
)
from waltz.common.errors import WaltzError
from waltz.common.ids import LONG_MIN
from waltz.common.metrics.registry import Json
from waltz.common.zk import store_admin
from waltz.common.zk.paths import ClusterPaths
from waltz.operations.placing import NewReplicas, place_replicas


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "zookeeper")
    parser = cluster_command(verbs, "create", "create the cluster's tree", _create)
    parser.add_argument("-n", "--name", required=True, help="name of the cluster")
    parser.add_argument(
        "-p",
        "--partitions",
        type=number(minimum=0),
        required=True,
        help="number of partitions, which cannot be changed later",
    )
    parser = cluster_command(verbs, "delete", "delete the cluster's tree; all data becomes unreachable", _delete)
    parser.add_argument("-n", "--name", required=True, help="name of the cluster, as a safeguard")
    parser.add_argument(
        "-f", "--force", action="store_true", help="delete the tree without a question, whatever its name is"
    )
    yes_option(parser)
    parser = cluster_command(verbs, "list", "print all metadata of the cluster in ZooKeeper", _list, prints=True)
    logger_option(parser)
    cluster_command(verbs, "show-cluster-key", "print the cluster key", _show_cluster_key, prints=True)
    parser = cluster_command(verbs, "add-storage-node", "add a storage node to the cluster", _add_storage_node)
    _storage_option(parser)
    parser.add_argument("-a", "--storage-admin-port", type=port, required=True, metavar="PORT")
    parser.add_argument("-g", "--group", type=number(), required=True, help="id of the storage group, e.g. a region")
    parser = cluster_command(verbs, "remove-storage-node", "remove a storage node without partitions", _remove)
    _storage_option(parser)
    parser = cluster_command(verbs, "assign-partition", "assign partitions to a storage node", _assign)
    _storage_option(parser)
    _partition_option(parser)
    parser = cluster_command(verbs, "unassign-partition", "take partitions away from a storage node", _unassign)
    _storage_option(parser)
    _partition_option(parser)
    parser = cluster_command(verbs, "auto-assign", "distribute all partitions over the nodes of a group", _auto_assign)
    parser.add_argument("-g", "--group", type=number(), required=True)
    parser.add_argument(
        "--size", type=number(minimum=1), help="replicas of each partition on different nodes (default: 1)"
    )
    parser.add_argument(
        "--spread",
        type=label_keys,
        metavar="KEYS",
        help="labels whose values make a zone, the widest first, e.g. datacenter,rack: replicas of a partition are in "
        "different zones; needs --size",
    )
    parser.add_argument("--ring", metavar="NAME", help="only nodes of this ring; the partitions stay in the ring")
    parser.add_argument("-p", "--partition", type=partition_ranges, help="e.g. 0-6,7,10-16 (default: all)")
    parser.add_argument("--force", action="store_true", help="allow two replicas of a partition in one zone")
    protecting.register(verbs)


def _storage_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-s", "--storage", type=endpoint, required=True, metavar="HOST:PORT", help="data port")


def _partition_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-p", "--partition", type=partition_ranges, required=True, help="e.g. 0-6,7,10-16")


async def _create(options: argparse.Namespace, session: Session) -> None:
    await store_admin.create_cluster(session.zookeeper, session.root, options.name, options.partitions)


async def _delete(options: argparse.Namespace, session: Session) -> None:
    if not options.force:
        servers = len(await store_admin.read_server_descriptors(session.zookeeper, session.root))
        running = f"; {servers} servers are running" if servers else ""
        confirm(options, f"delete cluster {options.name} at {session.root}? All its data becomes unreachable{running}")
    await store_admin.delete_cluster(session.zookeeper, session.root, options.name, force=options.force)


async def _show_cluster_key(options: argparse.Namespace, session: Session) -> None:
    key = str((await store_admin.read_store_params(session.zookeeper, session.root)).key)
    show(options, {"key": key}, [key])


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
    if options.size is None:
        if options.spread or options.ring or options.partition or options.force:
            raise WaltzError("--spread, --ring, -p and --force need --size, the number of replicas of each partition")
        await store_admin.auto_assign(session.zookeeper, session.root, options.group)
        return
    wanted = NewReplicas(
        options.group, options.size, options.spread or (), options.ring, options.partition, options.force
    )
    await place_replicas(session.cluster, wanted)


async def _list(options: argparse.Namespace, session: Session) -> None:
    zookeeper, root = session.zookeeper, session.root
    paths = ClusterPaths.of(root)
    await store_admin.sync_cluster(zookeeper, root)  # operators rely on seeing all earlier changes
    params = await store_admin.read_cluster_params(zookeeper, root)
    lines = [f"cluster [{root}]:", f"  name: {params.name}, numPartitions: {params.partition_count}"]
    servers = await _list_servers(session, lines)
    store = await store_admin.read_store_params(zookeeper, root)
    lines += [f"store [{paths.store}]:", f"  key: {store.key}, numPartitions: {store.partition_count}"]
    groups = (await store_admin.read_groups(zookeeper, root)).groups
    replicas = (await store_admin.read_replica_assignments(zookeeper, root)).partitions
    admin_ports = (await store_admin.read_connections(zookeeper, root)).admin_ports
    storages: dict[str, Json] = {}
    lines.append(f"store [{paths.assignment}] replica and group assignments:")
    for storage in sorted(replicas.keys() | groups.keys()):
        partitions = list(replicas.get(storage, ()))
        lines.append(f"  {storage} = {partitions}, GroupId: {groups.get(storage)}")
        storages[storage] = {
            "partitions": partitions,
            "group": groups.get(storage),
            "admin_port": admin_ports.get(storage),
        }
    lines.append(f"store [{paths.connection}] connections:")
    lines += [f"  {storage} has admin port: {admin_port}" for storage, admin_port in sorted(admin_ports.items())]
    states = {
        str(partition_id): await _list_replica_states(session, paths, partition_id, lines)
        for partition_id in range(params.partition_count)
    }
    document: Json = {
        "name": params.name,
        "root": root,
        "key": str(store.key),
        "partitions": params.partition_count,
        **servers,
        "storages": storages,
        "replica_states": states,
    }
    show(options, document, lines)


async def _list_servers(session: Session, lines: list[str]) -> dict[str, Json]:
    paths = ClusterPaths.of(session.root)
    descriptors = await store_admin.read_server_descriptors(session.zookeeper, session.root)
    lines.append(f"server descriptors [{paths.server_descriptors}]:")
    servers: list[Json] = []
    for server_id, address, preferred in descriptors:
        lines.append(f"  server: {server_id}, endpoint: {address}, preferred partitions: {list(preferred) or '*'}")
        servers.append({"server": server_id, "endpoint": str(address), "preferred_partitions": list(preferred)})
    assignment = await store_admin.read_partition_assignment(session.zookeeper, session.root)
    lines += [
        "assignment metadata:",
        f"  cversion: {assignment.cversion}, endpoints: {len(descriptors)}, partitions: {assignment.partition_count}",
        "assignments:",
    ]
    assignments: list[Json] = []
    for server_id, partitions in sorted(assignment.servers.items()):
        for partition_id, generation in sorted(partitions):
            lines.append(f"  server: {server_id}, partition: {partition_id}, generation: {generation}")
            assignments.append({"server": server_id, "partition": partition_id, "generation": generation})
    return {"servers": servers, "assignment_cversion": assignment.cversion, "assignments": assignments}


async def _list_replica_states(session: Session, paths: ClusterPaths, partition_id: int, lines: list[str]) -> Json:
    lines.append(f"store [{paths.partition(partition_id)}] replica states:")
    metadata = await store_admin.read_partition_metadata(session.zookeeper, session.root, partition_id)
    if metadata is None:
        lines.append("  No node found")
        return None
    states: list[Json] = []
    for replica_id, state in sorted(metadata.replicas.items()):
        mark = None if state.closing_high_water_mark == LONG_MIN else state.closing_high_water_mark
        lines.append(
            f"  ReplicaId({replica_id.partition_id},{replica_id.connect_string}), SessionId: {state.session_id}, "
            f"closingHighWaterMark: {'UNRESOLVED' if mark is None else mark}"
        )
        states.append(
            {
                "storage": replica_id.connect_string,
                "session": state.session_id,
                "closing_high_water_mark": mark,
            }
        )
    return states
