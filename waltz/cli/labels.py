"""``waltz storage label`` and ``waltz storage ring``: labels for the places of storages, and named sets of storages."""

import argparse

from waltz.cli.output import show
from waltz.cli.session import Nouns, Session, cluster_command, endpoint
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.common.partition_ids import id_ranges
from waltz.common.zk.storage_labels import (
    Labels,
    change_labels,
    delete_ring,
    labels_text,
    read_labels,
    read_rings,
    write_ring,
)
from waltz.common.zk.store_admin import read_connections, sync_cluster


def register(verbs: Nouns) -> None:
    """Add the verbs to ``waltz storage``."""
    help_text = "set labels for the place of a storage node; without a node print the labels of all nodes"
    parser = cluster_command(verbs, "label", help_text, _label, prints=True)
    parser.add_argument("storage", nargs="?", type=endpoint, metavar="HOST:PORT", help="data port")
    parser.add_argument(
        "labels",
        nargs="*",
        type=_change,
        metavar="KEY=VALUE",
        help="e.g. datacenter=a rack=1; KEY= removes a label (default: print the node's labels)",
    )
    help_text = "make a named set of storage nodes for zookeeper auto-assign; without a name print all rings"
    parser = cluster_command(verbs, "ring", help_text, _ring, prints=True)
    parser.add_argument("name", nargs="?", metavar="NAME")
    parser.add_argument("storages", nargs="*", type=endpoint, metavar="HOST:PORT", help="data ports of its nodes")
    parser.add_argument("--delete", action="store_true", help="forget the ring; replicas stay where they are")


def _change(text: str) -> tuple[str, str | None]:
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError(f"not of the form KEY=VALUE: {text!r}")
    return key, value or None


async def _label(options: argparse.Namespace, session: Session) -> None:
    zookeeper, root = session.zookeeper, session.root
    if options.labels:
        changes = dict(options.labels)
        if len(changes) < len(options.labels):
            raise WaltzError("a label is given more than once")
        storage = str(options.storage)
        labels = await change_labels(zookeeper, root, storage, changes)
        show(options, {storage: dict(labels)}, [_line(storage, labels)])
        return
    await sync_cluster(zookeeper, root)
    known = (await read_connections(zookeeper, root)).admin_ports
    stored = await read_labels(zookeeper, root)
    if options.storage is not None and str(options.storage) not in known:
        raise WaltzError(f"there is no storage node {options.storage} in the cluster")
    storages = sorted(known.keys() | stored.labels.keys()) if options.storage is None else [str(options.storage)]
    document: dict[str, Json] = {storage: dict(stored.labels.get(storage, {})) for storage in storages}
    show(options, document, [_line(storage, stored.labels.get(storage, {})) for storage in storages])
    if stored.unreadable:
        raise WaltzError("; ".join(stored.unreadable))


def _line(storage: str, labels: Labels) -> str:
    return f"{storage} {labels_text(labels) or 'has no labels'}"


async def _ring(options: argparse.Namespace, session: Session) -> None:
    zookeeper, root = session.zookeeper, session.root
    if options.delete:
        if options.name is None or options.storages:
            raise WaltzError("--delete takes the name of a ring only, without storage nodes")
        await delete_ring(zookeeper, root, options.name)
        return
    if options.storages:
        await write_ring(zookeeper, root, options.name, map(str, options.storages))
    await sync_cluster(zookeeper, root)
    rings = await read_rings(zookeeper, root)
    if options.name is not None and options.name not in rings:
        raise WaltzError(f"there is no ring {options.name!r}; to make the ring, name its storage nodes")
    document: dict[str, Json] = {}
    lines = []
    for name, ring in rings.items():
        if options.name in (None, name):
            document[name] = {"storages": list(ring.storages), "partitions": list(ring.partition_ids)}
            lines.append(f"{name}: {', '.join(ring.storages)}; partitions {id_ranges(ring.partition_ids) or 'none'}")
    show(options, document, lines)
