"""HTTP pages of a bot: the four resources of Amza's bot, and metrics."""

import ssl
from collections.abc import Callable

from waltz.bot.bot import Bot
from waltz.common.metrics.registry import Json, Registry
from waltz.common.net.http import HttpServer, Request, Response, json_page


async def open_status(
    host: str, port: int, bot: Bot, reset: Callable[[], None], tls: ssl.SSLContext | None = None
) -> HttpServer:
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

    registry = Registry()
    registry.gauge("waltz-bot", "done", lambda: bot.done)
    registry.gauge("waltz-bot", "deviations", lambda: bot.journal.deviations)
    registry.gauge("waltz-bot", "quarantined", lambda: len(bot.journal.expected.quarantine))
    registry.gauge("waltz-bot", "retries", lambda: bot.troubles.retries)
    more = {"GET /valid-keys": valid_keys, "GET /invalid-keys": invalid_keys, "POST /reset": reset_all}
    return await HttpServer.open(host, port, registry, health=health, more=more, tls=tls)
