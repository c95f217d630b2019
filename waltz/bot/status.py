"""HTTP pages of a bot: the four resources of Amza's bot, and metrics."""

import ssl
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

from waltz.bot.bot import Bot
from waltz.common.access import ALLOW_ALL, Access
from waltz.common.ids import Endpoint
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.http import HttpServer, Page, Request, Response, json_page
from waltz.common.net.token_gate import Identities


class Port(NamedTuple):
    """The HTTP port of a bot, and who may read it."""

    address: Endpoint
    """Port 0 is any."""
    tls: ssl.SSLContext | None = None
    """The context of HTTPS; ``None`` for plain HTTP."""
    access: Access = ALLOW_ALL
    identities: Identities | None = None
    """Tells who readers are; without it tokens are not looked at."""
    open_paths: Collection[str] = ()
    """Paths that everybody may read, beside ``/ping``."""
    pages: Mapping[str, Page] = MappingProxyType({})
    """Further pages, by method and path."""
    registry: Registry | None = None
    """The metrics, to which those of the bot are added; ``None`` for a registry of its own."""


async def open_status(port: Port, bot: Bot, reset: Callable[[], None]) -> HttpServer:
    """Serve the pages of a bot. The caller closes the result. ``reset`` restarts the work of the bot. Raises
    ``WaltzError``."""

    def valid_keys(request: Request) -> Response:
        valid = bot.valid
        return json_page({"count": len(valid), "keys": valid}, request)

    def invalid_keys(request: Request) -> Response:
        quarantine = bot.journal.expected.quarantine
        keys: dict[str, Json] = {
            key: {"what": each.what, "operation": each.op, "client": each.process, "time_ms": each.time_ms}
            for key, each in quarantine.items()
        }
        return json_page({"count": len(quarantine), "keys": keys}, request)

    def reset_all(request: Request) -> Response:
        reset()
        return json_page({"reset": True}, request)

    def health() -> tuple[bool, Json]:
        quarantined = len(bot.journal.expected.quarantine)
        return quarantined == 0, {
            "healthy": quarantined == 0,
            "deviations": quarantined,
            "retrying": bot.troubles.present,
            **bot.counts,
        }

    registry = port.registry or Registry()
    registry.gauge("waltz-bot", "done", lambda: bot.done)
    registry.gauge("waltz-bot", "deviations", lambda: bot.journal.deviations)
    registry.gauge("waltz-bot", "quarantined", lambda: len(bot.journal.expected.quarantine))
    registry.gauge("waltz-bot", "retries", lambda: bot.troubles.retries)
    more = {"GET /valid-keys": valid_keys, "GET /invalid-keys": invalid_keys, "POST /reset": reset_all, **port.pages}
    return await HttpServer.open(
        port.address.host,
        port.address.port,
        registry,
        health=health,
        more=more,
        access=port.access,
        tls=port.tls,
        identities=port.identities,
        open_paths=port.open_paths,
    )
