"""``waltz bot``: programs that test a cluster beside production, in a partition of their own."""

import argparse
import asyncio
import contextlib
import os
import socket
from collections.abc import Callable
from pathlib import Path

from waltz.bot.bank import Bank, BankOptions
from waltz.bot.bot import Bot
from waltz.bot.coal_mine import SPACE as CANARY
from waltz.bot.coal_mine import CoalMine, CoalMineOptions
from waltz.bot.expected import Deviation, Expected
from waltz.bot.history import Header, HistoryFile, read_history
from waltz.bot.journal import Journal
from waltz.bot.opening import Opened, Place, open_place
from waltz.bot.prover import Prover
from waltz.bot.random_operations import SPACE as RANDOM
from waltz.bot.random_operations import RandomOperations, RandomOptions
from waltz.bot.running import CLEAN, DEVIATED, RunLimits, run
from waltz.bot.status import Port
from waltz.bot.troubles import Troubles
from waltz.cli.output import json_option, show
from waltz.cli.session import Nouns, client_config, cluster_option, endpoint, named_cluster, noun, number
from waltz.common.config.schemas import CliConfig
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.tls import server_context
from waltz.common.zk.kazoo_client import connect_configured
from waltz.common.zk.store_admin import read_store_params

MIB = 1 << 20

Make = Callable[[argparse.Namespace, Opened, Journal, Troubles], Bot]


def register(nouns: Nouns) -> None:
    """Add the noun and its verbs."""
    verbs = noun(nouns, "bot")

    help_text = "random operations of several clients on the same rows; every answer has to be linearizable"
    parser = _verb(verbs, "random", help_text, _random, "operations")
    options = RandomOptions()
    parser.add_argument("--keys", type=number(1, 1_000_000), default=options.keys, help="default: %(default)s")
    parser.add_argument(
        "--batch", type=number(1, 10_000), default=options.batch_rows, metavar="ROWS", help="default: up to %(default)s"
    )
    parser.add_argument(
        "--value-size",
        type=number(1, 100_000),
        default=options.value_size,
        metavar="CHARACTERS",
        help="default: up to %(default)s",
    )
    parser.add_argument(
        "--pause",
        type=_seconds,
        default=options.pause_s,
        metavar="SECONDS",
        help="pause of each client between two operations; default: up to %(default)s",
    )
    parser.add_argument(
        "--round",
        type=number(1),
        default=options.round_operations,
        metavar="N",
        help="operations between two scans of all rows (default: %(default)s)",
    )
    _history_options(parser)

    help_text = "every five minutes: insert canaries, count them, and remove them again"
    parser = _verb(verbs, "coalmine", help_text, _coal_mine, "rounds")
    mine = CoalMineOptions()
    parser.add_argument("--canaries", type=number(1, 1_000_000), default=mine.canaries, help="default: %(default)s")
    parser.add_argument(
        "--interval", type=_seconds, default=mine.interval_s, metavar="SECONDS", help="default: %(default)g"
    )
    _history_options(parser)

    help_text = "transfers between accounts under locks, where the sum of money must not change; and write sessions"
    parser = _verb(verbs, "bank", help_text, _bank, "transfers", clients=4)
    bank = BankOptions()
    parser.add_argument("--accounts", type=number(2, 5000), default=bank.accounts, help="default: %(default)s")
    parser.add_argument(
        "--pause",
        type=_seconds,
        default=bank.pause_s,
        metavar="SECONDS",
        help="of each teller between two transfers; default: up to %(default)s",
    )
    parser.add_argument(
        "--fence-every",
        type=_seconds,
        default=bank.fence_interval_s,
        metavar="SECONDS",
        help="how often a teller begins a write session, if servers support them; 0: never (default: %(default)g)",
    )
    parser.set_defaults(history=None, history_limit=0)

    help_text = "check the history of a bot"
    parser = verbs.add_parser("check", help=help_text, description=help_text)
    parser.add_argument("history", type=Path, metavar="HISTORY")
    json_option(parser)
    parser.set_defaults(run=_check)


def _verb(verbs: Nouns, name: str, help_text: str, make: Make, unit: str, clients: int = 2) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=help_text, description=help_text)
    cluster_option(parser)
    parser.add_argument(
        "-p",
        "--partition",
        type=number(minimum=0),
        required=True,
        help="a partition for this bot alone: empty, or only used by bots",
    )
    parser.add_argument(
        "--operations", type=number(minimum=1), metavar="N", help=f"end after this number of {unit} (default: never)"
    )
    parser.add_argument("--duration", type=_seconds, metavar="SECONDS", help="end after that time (default: never)")
    parser.add_argument("--clients", type=number(2, 64), default=clients, help="default: %(default)s")
    parser.add_argument("--store", default="memory", help="store of the clients' views (default: %(default)s)")
    parser.add_argument("--directory", type=Path, metavar="DIR", help="directory of stores on disk")
    parser.add_argument(
        "--http",
        type=_address,
        metavar="[HOST:]PORT",
        help="serve metrics and health at this port; 0: any port (default: none)",
    )

    def start(options: argparse.Namespace) -> int:
        return asyncio.run(_run(options, named_cluster(options, parser), name, make))

    parser.set_defaults(run=start)
    return parser


def _history_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--history", type=Path, metavar="FILE", help="log every operation, in lines of JSON")
    parser.add_argument(
        "--history-limit",
        type=number(minimum=1),
        default=1024,
        metavar="MIB",
        help="size at which the history is renamed to FILE.1 and begun again (default: %(default)s)",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a number of seconds: {text!r}") from None
    if not 0 <= seconds <= 1e9:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1e9, not {text}")
    return seconds


def _address(text: str) -> Endpoint:
    host, _, given = text.rpartition(":")
    if given == "0":
        return Endpoint(host or "127.0.0.1", 0)
    return endpoint(text if host else f"127.0.0.1:{text}")


async def _run(options: argparse.Namespace, config: CliConfig, name: str, make: Make) -> int:
    has_sessions = name == "bank" and options.fence_every > 0
    place = Place(
        client_config(config), options.partition, options.clients, options.store, options.directory, has_sessions
    )
    async with contextlib.AsyncExitStack() as outer, open_place(place) as opened:
        port = None if options.http is None else await _port(options.http, config, name, outer)
        with contextlib.ExitStack() as stack:
            history = None
            if options.history is not None:
                history = HistoryFile(options.history, options.history_limit * MIB)
                stack.callback(history.close)
            cluster = opened.clients[0].cluster_name
            journal = Journal(name, cluster, options.partition, history, _tell)
            bot = make(options, opened, journal, Troubles())
            print(
                f"bot {name}, run {journal.run}, in partition {options.partition} of {cluster}; Ctrl-C ends it",
                flush=True,
            )
            return await run(bot, RunLimits(options.duration, port))


async def _port(address: Endpoint, config: CliConfig, name: str, stack: contextlib.AsyncExitStack) -> Port:
    """The HTTP port of a bot, which asks the cluster's access rules who may read it if the configuration says so."""
    tls = server_context(config.tls, optional_certificate=config.acl.enabled) if config.http_tls else None
    if not config.acl.enabled:
        return Port(address, tls)
    from waltz.common.acl.node import start_page_access  # only bots with rules need it

    zookeeper = await connect_configured(config, connect_timeout_s=config.zookeeper_connect_timeout_ms / 1000)
    stack.push_async_callback(zookeeper.close)
    registry = Registry()
    store = await read_store_params(zookeeper, config.cluster_root)
    process = f"bot-{name}-{socket.gethostname()}-{os.getpid()}"
    asked = await start_page_access(config.acl, zookeeper, config.cluster_root, process, store, registry)
    stack.push_async_callback(asked.close)
    open_paths = () if config.http_open is None else config.http_open.split(",")
    rules = asked.rules
    return Port(address, tls, rules.access, asked.identities.identities, open_paths, rules.pages, registry)


def _tell(deviation: Deviation) -> None:
    print(_line(deviation), flush=True)


def _line(deviation: Deviation) -> str:
    return f"DEVIATION at {deviation.key}: {deviation.what}"


def _random(options: argparse.Namespace, opened: Opened, journal: Journal, troubles: Troubles) -> Bot:
    chosen = RandomOptions(options.keys, options.value_size, options.batch, options.pause, options.round)
    return RandomOperations(Prover(RANDOM, opened.tables, journal, troubles), chosen, options.operations)


def _coal_mine(options: argparse.Namespace, opened: Opened, journal: Journal, troubles: Troubles) -> Bot:
    chosen = CoalMineOptions(options.canaries, options.interval)
    return CoalMine(Prover(CANARY, opened.tables, journal, troubles), chosen, options.operations)


def _bank(options: argparse.Namespace, opened: Opened, journal: Journal, troubles: Troubles) -> Bot:
    chosen = BankOptions(accounts=options.accounts, pause_s=options.pause, fence_interval_s=options.fence_every)
    return Bank(opened.clients, opened.tables, options.partition, journal, troubles, chosen, options.operations)


def _check(options: argparse.Namespace) -> int:
    expected = Expected()
    found: list[Deviation] = []
    runs: list[Header] = []
    for event in read_history(options.history):
        if isinstance(event, Header):
            runs.append(event)
        found += expected.take(event)
    found += expected.give_up()
    told: list[Json] = [run.model_dump(exclude={"type", "format"}) for run in runs]
    document: dict[str, Json] = {
        "runs": told,
        "operations": expected.operations,
        "unknown": expected.unknown,
        "deviations": [{"key": str(deviation.key), "what": deviation.what} for deviation in found],
    }
    show(
        options,
        document,
        [
            *(f"bot {run.bot}, run {run.run}, partition {run.partition} of {run.cluster}, {run.began}" for run in runs),
            *map(_line, found),
            f"operations {expected.operations}, of unknown outcome {expected.unknown}, deviations {len(found)}",
        ],
    )
    return DEVIATED if found else CLEAN
