"""The base of most commands: their common options, and the connection to the cluster of a ``-c`` file.

Modules for the connection are imported with the connection: help and usage errors do not need them.
"""

import argparse
import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from waltz.cli.nouns import NOUNS
from waltz.cli.output import json_option
from waltz.common.cluster.handle import ClusterHandle
from waltz.common.config.command import setting_options
from waltz.common.config.reader import settle
from waltz.common.config.schemas import CliConfig, ClientConfig
from waltz.common.config.sources import Setting, examine_sources
from waltz.common.errors import ConfigError, WaltzError
from waltz.common.ids import Endpoint
from waltz.common.iso_time import parse_time
from waltz.common.partition_ids import check_partition, ids_in
from waltz.common.zk.store_admin import read_store_params

if TYPE_CHECKING:
    import ssl

    from waltz.asynchronous import Client
    from waltz.common.zk.client import ZooKeeper

logger = logging.getLogger(__name__)

CONFIG_VARIABLE = "WALTZ_CONFIG"
"""Environment variable with the configuration file of commands without ``-c``."""

Nouns: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""The type of a set of subparsers."""


class Session(NamedTuple):
    """A command's connection to the cluster."""

    zookeeper: "ZooKeeper"
    root: str
    tls: "ssl.SSLContext | None"
    config: CliConfig | None = None
    """The configuration of the command."""

    @property
    def http_tls(self) -> "ssl.SSLContext | None":
        """The context for the HTTP endpoints of nodes; ``None`` where these are plain HTTP."""
        return self.tls if self.config is not None and self.config.http_tls else None

    @property
    def cluster(self) -> ClusterHandle:
        """The connected cluster."""
        return ClusterHandle(self.zookeeper, self.root, self.tls)


ClientCommand: TypeAlias = "Callable[[argparse.Namespace, Client], Awaitable[None]]"
Command = Callable[[argparse.Namespace, Session], Awaitable[None]]


def noun(nouns: Nouns, name: str) -> Nouns:
    """Add a noun; returns the parent of its verbs."""
    help_text = NOUNS[name].help_text
    return nouns.add_parser(name, help=help_text, description=help_text).add_subparsers(
        title="verbs", required=True, metavar="VERB"
    )


def cluster_command(
    verbs: Nouns, name: str, help_text: str, command: Command, *, prints: bool = False
) -> argparse.ArgumentParser:
    """Add a verb that works on the cluster named by ``-c``; returns its parser for more options.

    A command that ``prints`` has the option ``--json``, and prints its result by :func:`waltz.cli.output.show`.
    """
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    cluster_option(parser)
    if prints:
        json_option(parser)
    parser.set_defaults(run=lambda options: _run(options, command, parser))
    return parser


def client_command(
    verbs: Nouns, name: str, help_text: str, command: ClientCommand, *, prints: bool = False
) -> argparse.ArgumentParser:
    """Add a verb that reads or writes the log of the cluster named by ``-c``, like an application."""

    async def run(options: argparse.Namespace, session: Session) -> None:
        async with client_of(session) as client:
            await command(options, client)

    return cluster_command(verbs, name, help_text, run, prints=prints)


def cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add ``-c``, the file that names the cluster."""
    parser.add_argument(
        "-c",
        "--cli-config-path",
        type=Path,
        default=os.environ.get(CONFIG_VARIABLE) or None,
        metavar="FILE",
        help=f"YAML file that names the cluster (default: the file named by {CONFIG_VARIABLE})",
    )
    setting_options(parser)
    parser.add_argument(
        "--token-file",
        action="append",
        default=[],
        type=_token_setting,
        dest="settings",
        metavar="FILE",
        help="present the token in this file instead of a certificate; the same as --set ssl.token.location=FILE",
    )


def _token_setting(text: str) -> Setting:
    return Setting("ssl.token.location", text)


def named_cluster(options: argparse.Namespace, parser: argparse.ArgumentParser) -> CliConfig:
    """The configuration from ``-c``, the environment and ``--set``; if it names no cluster, a usage error.

    A warning reports each variable that overrides the file, since it may lead to another cluster.

    Raises:
        ConfigError: The configuration is wrong.
    """
    path: Path | None = options.cli_config_path
    reading = examine_sources(path, CliConfig, options.settings, os.environ)
    if path is None and not reading.sources:
        parser.error(
            "no cluster is named: give -c/--cli-config-path FILE, or set the environment variable "
            f"{CONFIG_VARIABLE} to the path of that file"
        )
    config = settle(reading, strict=options.strict)
    typed = {key for key, _ in options.settings}
    for key, what in reading.replaced.items():
        if key not in typed:
            logger.warning("%s overrides '%s' of %s", what, key, path)
    return config


def _run(options: argparse.Namespace, command: Command, parser: argparse.ArgumentParser) -> int:
    config = named_cluster(options, parser)

    from waltz.common.zk.kazoo_client import connect_configured

    async def run() -> None:
        tls = _tls_of(config, options.cli_config_path)
        zookeeper = await connect_configured(config, connect_timeout_s=config.zookeeper_connect_timeout_ms / 1000)
        try:
            await command(options, Session(zookeeper, config.cluster_root, tls, config))
        finally:
            await zookeeper.close()

    asyncio.run(run())
    return 0


def http_context(options: argparse.Namespace, parser: argparse.ArgumentParser) -> "ssl.SSLContext | None":
    """The context for HTTP endpoints, for a command without a cluster. Without a configuration, it is plain HTTP.

    Raises:
        ConfigError: The configuration is wrong.
    """
    if options.cli_config_path is None and not options.settings:
        return None
    config = named_cluster(options, parser)
    return _tls_of(config, options.cli_config_path) if config.http_tls else None


def _tls_of(config: CliConfig, path: Path | None) -> "ssl.SSLContext | None":
    from waltz.common.net.tls import client_context

    try:
        return client_context(config.tls)
    except ConfigError as error:
        raise ConfigError(f"{path or 'environment'}: ssl: {error}") from error


def client_of(session: Session) -> "Client":
    """A client of the command's cluster; open it with ``async with``."""
    from waltz.asynchronous import connect

    assert session.config is not None
    return connect(client_config(session.config), zookeeper=session.zookeeper)


def client_config(config: CliConfig) -> ClientConfig:
    """The configuration of a client of the same cluster."""
    return ClientConfig(
        zookeeper_connect_string=config.zookeeper_connect_string,
        cluster_root=config.cluster_root,
        zookeeper_session_timeout_ms=config.zookeeper_session_timeout_ms,
        zookeeper_user=config.zookeeper_user,
        zookeeper_password=config.zookeeper_password,
        zookeeper_password_file=config.zookeeper_password_file,
        zookeeper_ssl_enabled=config.zookeeper_ssl_enabled,
        tls=config.tls,
    )


async def check_partition_ids(session: Session, *partition_ids: int) -> None:
    """Check ids of partitions.

    Raises:
        WaltzError: The cluster does not have one of the partitions.
    """
    count = (await read_store_params(session.zookeeper, session.root)).partition_count
    check_partition(max(partition_ids), count)


def number(minimum: int | None = None, maximum: int | None = None) -> Callable[[str], int]:
    """A whole number within bounds, for argparse."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"not a whole number: {text!r}") from None
        if minimum is not None and value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}, not {value}")
        if maximum is not None and value > maximum:
            raise argparse.ArgumentTypeError(f"must be at most {maximum}, not {value}")
        return value

    return parse


port = number(1, 65535)
"""A port, for argparse."""


def moment(text: str) -> datetime:
    """Parse a time with its zone, for argparse."""
    try:
        return parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def partition_ranges(text: str) -> list[int]:
    """Parse ``0-6,7,10-16``: sorted, without duplicates. Raises ``argparse.ArgumentTypeError``."""
    try:
        return ids_in(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def label_keys(text: str) -> tuple[str, ...]:
    """Parse ``datacenter,rack``, for argparse."""
    keys = tuple(part.strip() for part in text.split(","))
    if not all(keys) or len(set(keys)) < len(keys):
        raise argparse.ArgumentTypeError(f"not a list of keys of labels like datacenter,rack: {text!r}")
    return keys


def endpoint(text: str) -> Endpoint:
    """Parse ``host:port`` for argparse."""
    try:
        return Endpoint.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def failed(what: str, error: Exception) -> WaltzError:
    """The error of a command in one line: ``what`` failed, and why."""
    return WaltzError(f"{what}: {error}")
