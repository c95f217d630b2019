"""``waltz local``: a whole cluster on this machine."""

import argparse
from pathlib import Path

from waltz.cli.session import Nouns, noun
from waltz.local import keeper
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Layout
from waltz.local.zookeeper import find_java, zookeeper_jars

DEFAULT_DIRECTORY = Path("waltz-local")


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "local", "a whole cluster on this machine: real ZooKeeper, storages, servers")
    for name, help_text, run in (
        ("start", "start a cluster in the background and wait until it is ready", _start),
        ("run", "run a cluster until Ctrl-C", _run),
    ):
        parser = _verb(verbs, name, help_text)
        parser.add_argument("--storages", type=_positive, default=3)
        parser.add_argument("--servers", type=_positive, default=2)
        parser.add_argument("--partitions", type=_positive, default=4)
        parser.add_argument("--plaintext", action="store_true", help="no TLS between the nodes")
        parser.set_defaults(run=run)
    _verb(verbs, "stop", "stop the cluster; its data stays").set_defaults(run=_stop)
    _verb(verbs, "status", "print what runs and where").set_defaults(run=_status)
    verbs.add_parser("java", help="check that a suitable Java is installed").set_defaults(run=_java)


def _verb(verbs: Nouns, name: str, help_text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    parser.add_argument(
        "--directory", type=Path, default=DEFAULT_DIRECTORY, help="data, logs, configuration (default: %(default)s)"
    )
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _run(options: argparse.Namespace) -> int:
    keeper.keep(
        LocalCluster(
            options.directory,
            storages=options.storages,
            servers=options.servers,
            partitions=options.partitions,
            plaintext=options.plaintext,
        )
    )
    return 0


def _start(options: argparse.Namespace) -> int:
    find_java(), zookeeper_jars()  # what this machine lacks is told here and not in the log of the keeper
    counts = [f"--{name}={getattr(options, name)}" for name in ("storages", "servers", "partitions")]
    keeper.start(
        options.directory,
        keeper.keeper_command(options.directory, *counts, *(["--plaintext"] if options.plaintext else [])),
    )
    return _status(options)


def _stop(options: argparse.Namespace) -> int:
    print("stopped" if keeper.stop(options.directory) else f"nothing runs in {options.directory}")
    return 0


def _status(options: argparse.Namespace) -> int:
    kept, layout = keeper.running(options.directory), Layout.read(options.directory)
    if kept is None or layout is None:
        print(f"nothing runs in {options.directory}")
        return 1
    print("ready" if kept.ready else "starting")
    addresses = {"zookeeper": layout.zookeeper_connect_string}
    addresses |= {node.name: f"{node.connect_string} (HTTP {node.http_port})" for node in layout.storages}
    addresses |= {node.name: f"{node.connect_string} (HTTP {node.http_port})" for node in layout.servers}
    for name, address in addresses.items():
        print(f"  {name:<12} process {kept.nodes.get(name, '-'):<8} {address}")
    print(f"  client configuration: {layout.client_config_path}\n  tools: -c {layout.cli_config_path}")
    return 0


def _java(options: argparse.Namespace) -> int:
    find_java()
    return 0
