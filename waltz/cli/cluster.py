"""``waltz cluster``: the cluster as a whole."""

import argparse

from waltz.cli.session import Nouns, Session, cluster_command, noun, number
from waltz.common.zk.ensure import StorageAddress, ensure_cluster


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "cluster", "the cluster as a whole")
    parser = cluster_command(
        verbs, "create", "create a cluster with its storage nodes, or what is missing of it; may be repeated", _create
    )
    parser.add_argument("-n", "--name", required=True, help="name of the cluster")
    parser.add_argument(
        "-p", "--partitions", type=number(minimum=1), required=True, help="number of partitions, for ever"
    )
    parser.add_argument(
        "-s",
        "--storage",
        type=_address,
        required=True,
        action="append",
        metavar="HOST:PORT:ADMIN_PORT",
        help="a storage node that is to hold every partition; repeat it for each",
    )


def _address(text: str) -> StorageAddress:
    try:
        return StorageAddress.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


async def _create(options: argparse.Namespace, session: Session) -> None:
    await ensure_cluster(session.zookeeper, session.root, options.name, options.partitions, options.storage)
    print(f"cluster {options.name} at {session.root}: {options.partitions} partitions, {len(options.storage)} storages")
