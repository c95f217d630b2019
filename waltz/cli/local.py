"""``waltz local``: a whole cluster on this machine."""

import argparse
from pathlib import Path

from waltz.cli.output import json_option, show, tell
from waltz.cli.session import Nouns, noun, number
from waltz.common.errors import WaltzError
from waltz.common.metrics.registry import Json
from waltz.local import keeper
from waltz.local.cluster import LocalCluster
from waltz.local.java import find_java
from waltz.local.layout import Layout
from waltz.local.zookeeper import zookeeper_jars

NEW_CLUSTER = {"storages": 3, "servers": 2, "partitions": 4}
DEFAULT_DIRECTORY = Path("waltz-local")


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "local")
    for name, help_text, run in (
        ("start", "start a cluster in the background and wait until it is ready", _start),
        ("run", "run a cluster until Ctrl-C", _run),
    ):
        parser = _verb(verbs, name, help_text)
        for what, count in NEW_CLUSTER.items():
            parser.add_argument(
                f"--{what}",
                type=number(minimum=1),
                metavar="N",
                help=f"default: the present number, {count} in a new cluster",
            )
        parser.add_argument(
            "--plaintext", action=argparse.BooleanOptionalAction, help="no TLS between the nodes (default: unchanged)"
        )
        parser.add_argument("--log-format", choices=("text", "json"), help="format of the nodes' logs (default: text)")
        parser.set_defaults(run=run)
        if run is _start:
            json_option(parser)
            parser.add_argument("node", nargs="?", metavar="NODE", help="start this node again, e.g. server-1")
    for name, help_text, run in (
        ("stop", "stop the cluster; its data stays", _stop),
        ("status", "print the running nodes and their addresses", _status),
    ):
        parser = _verb(verbs, name, help_text)
        json_option(parser)
        parser.set_defaults(run=run)
    help_text = "check that a suitable Java is installed"
    verbs.add_parser("java", help=help_text, description=help_text).set_defaults(run=_java)


def _verb(verbs: Nouns, name: str, help_text: str) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    parser.add_argument(
        "--directory", type=Path, default=DEFAULT_DIRECTORY, help="data, logs, configuration (default: %(default)s)"
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    shape = {what: getattr(options, what) for what in NEW_CLUSTER}
    if Layout.read(options.directory) is None:
        shape = {what: count if shape[what] is None else shape[what] for what, count in NEW_CLUSTER.items()}
    log_format = options.log_format or "text"
    keeper.keep(LocalCluster(options.directory, **shape, plaintext=options.plaintext, log_format=log_format))
    return 0


def _start(options: argparse.Namespace) -> int:
    asked = [f"--{what}={getattr(options, what)}" for what in NEW_CLUSTER if getattr(options, what) is not None]
    if options.plaintext is not None:
        asked.append("--plaintext" if options.plaintext else "--no-plaintext")
    if options.log_format is not None:
        asked.append(f"--log-format={options.log_format}")
    if options.node is not None:
        if asked:
            raise WaltzError(f"{asked[0]} is for a whole cluster, not for the node {options.node}")
        if not keeper.bring_back(options.directory, options.node):
            tell(options, f"{options.node} is already running")
    else:
        zookeeper_jars(), find_java()  # report missing requirements here, not in the log of the keeper
        keeper.start(options.directory, keeper.keeper_command(options.directory, *asked))
    return _status(options)


def _stop(options: argparse.Namespace) -> int:
    stopped = keeper.stop(options.directory)
    show(options, {"stopped": stopped}, ["stopped" if stopped else f"nothing runs in {options.directory}"])
    return 0


def _status(options: argparse.Namespace) -> int:
    kept, layout = keeper.running(options.directory), Layout.read(options.directory)
    if kept is None or layout is None:
        show(options, {"state": "stopped", "nodes": []}, [f"nothing runs in {options.directory}"])
        return 1
    ended = [name for name in layout.names if kept.ready and name not in kept.nodes]
    if not kept.ready:
        state = "starting"
    elif ended:
        state = f"not all nodes run; bring one back with: waltz local start --directory {options.directory} {ended[0]}"
    else:
        state = "ready"
    addresses = {"zookeeper": layout.zookeeper_connect_string}
    addresses |= {node.name: f"{node.connect_string} (HTTP {node.http_port})" for node in layout.storages}
    addresses |= {node.name: f"{node.connect_string} (HTTP {node.http_port})" for node in layout.servers}
    lines = [state]
    for name, address in addresses.items():
        process = "has ended" if name in ended else f"process {kept.nodes.get(name, '-')}"
        lines.append(f"  {name:<12} {process:<16} {address}")
    lines += [f"  client configuration: {layout.client_config_path}", f"  tools: -c {layout.cli_config_path}"]
    nodes: list[Json] = [
        {
            "name": node.name,
            "process": kept.nodes.get(node.name),
            "address": node.connect_string,
            "http_port": node.http_port,
        }
        for node in (*layout.storages, *layout.servers)
    ]
    document: Json = {
        "state": "degraded" if ended else state,
        "zookeeper": layout.zookeeper_connect_string,
        "nodes": nodes,
        "client_configuration": str(layout.client_config_path),
        "tools_configuration": str(layout.cli_config_path),
    }
    show(options, document, lines)
    return 1 if ended else 0


def _java(_options: argparse.Namespace) -> int:
    find_java()
    return 0
