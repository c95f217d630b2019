"""Write sessions in the HTTP metrics of servers: holders, and the numbers of fences and refused appends.

Servers do not register their HTTP ports in the cluster; the operator names the ports.
"""

import argparse
import asyncio
import json
import re
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from waltz.cli.session import endpoint, port
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint
from waltz.common.net.tls_renewal import present, token_of

_PARTITION_METRIC = re.compile(r"waltz-server\.partition-(\d+)\.write-session")

HttpAddress = Endpoint | int
"""Address of a server, or a port for all servers."""


class SessionMetrics(NamedTuple):
    """Counts of the owner of a partition since it became the owner."""

    exclusive_holder: int | None
    """Id of the client with an exclusive session; ``None``: there is none."""
    appends: int
    """Appends accepted under a write session."""
    fences: int
    fenced_appends: int
    """Appends refused because of their session."""
    dropped_appends: int
    """Appends of clients before version 5, dropped because another client has an exclusive session."""

    @property
    def in_use(self) -> bool:
        """Whether clients use write sessions on the partition, according to the counts."""
        return self.exclusive_holder is not None or any((self.appends, self.fences, self.fenced_appends))


class ServerMetrics(NamedTuple):
    """The metrics of a server, as far as commands need them."""

    endpoint: str
    """The server's ``host:port`` in the cluster."""
    sessions: dict[int, SessionMetrics]
    """The write sessions by partition; empty for a server without write sessions."""


def add_http_option(parser: argparse.ArgumentParser, what_for: str) -> None:
    """Add the option for the HTTP ports of servers."""
    parser.add_argument(
        "--http",
        type=_http_address,
        action="append",
        default=[],
        metavar="[HOST:]HTTP_PORT",
        help=f"server.jetty.port of all servers, or of the one on HOST; may be repeated; {what_for}",
    )


def _http_address(text: str) -> HttpAddress:
    return endpoint(text) if ":" in text else port(text)


def parse_metrics(text: str) -> ServerMetrics:
    """Parse the JSON of ``/metrics``.

    Raises:
        WaltzError: The metrics are not a server's.
    """
    try:
        document = json.loads(text)
        gauges, meters = document["gauges"], document["meters"]
        name = gauges["waltz-server.endpoint"]["value"]
        partitions = [int(match[1]) for match in map(_PARTITION_METRIC.fullmatch, gauges) if match]
        return ServerMetrics(str(name), {each: _session_metrics(each, gauges, meters) for each in partitions})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WaltzError(f"these are not the metrics of a server: {error!r}") from None


def _session_metrics(
    partition_id: int, gauges: Mapping[str, Mapping[str, int]], meters: Mapping[str, Mapping[str, int]]
) -> SessionMetrics:
    group = f"waltz-server.partition-{partition_id}"
    holder = gauges[f"{group}.exclusive-holder"]["value"]
    names = ("session-append", "fences", "session-fenced", "dropped-exclusive")
    return SessionMetrics(None if holder < 0 else holder, *(meters[f"{group}.{name}"]["count"] for name in names))


async def read_metrics(
    addresses: Iterable[HttpAddress], servers: Sequence[Endpoint], timeout_s: float, tls: ssl.SSLContext | None
) -> tuple[dict[Endpoint, ServerMetrics], dict[Endpoint, str]]:
    """The metrics of servers, by their endpoints in the cluster, and the errors of others, by HTTP address.

    Servers that are not in the cluster are left out. ``tls`` is the context of HTTPS; ``None`` for plain HTTP."""
    wanted = {
        each
        for address in addresses
        for each in ([address] if isinstance(address, Endpoint) else [Endpoint(one.host, address) for one in servers])
    }
    by_name = {str(server): server for server in servers}
    found: dict[Endpoint, ServerMetrics] = {}
    failures: dict[Endpoint, str] = {}

    async def read(address: Endpoint) -> None:
        try:
            metrics = parse_metrics(await fetch_metrics(address, timeout_s, tls))
        except (WaltzError, OSError, ValueError) as error:
            failures[address] = str(error)
        else:
            if metrics.endpoint in by_name:
                found[by_name[metrics.endpoint]] = metrics

    async with asyncio.TaskGroup() as group:
        for address in wanted:
            group.create_task(read(address))
    return found, dict(sorted(failures.items()))


async def fetch_metrics(address: Endpoint, timeout_s: float, tls: ssl.SSLContext | None) -> str:
    """The JSON of a node's ``/metrics``, over HTTPS with a context. The reader's certificate or token is that of the
    context.

    Raises ``WaltzError``, ``OSError`` and ``ValueError``."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _fetch(address, tls)
    except TimeoutError:
        raise WaltzError(f"no answer within {timeout_s:g} s") from None


async def _fetch(address: Endpoint, tls: ssl.SSLContext | None) -> str:
    """Get a page by HTTP 1.0: the body ends with the connection, and has no transfer encoding."""
    head = f"GET /metrics HTTP/1.0\r\nHost: {address}\r\nAccept: application/json\r\n"
    source = token_of(tls)
    if source is not None:
        head += f"Authorization: Bearer {await source.read()}\r\n"
    context = None if tls is None else present(tls)
    reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    try:
        writer.write(f"{head}\r\n".encode())
        head, _, body = (await reader.read()).decode().partition("\r\n\r\n")
    finally:
        writer.close()
    status = head.partition("\r\n")[0]
    match status.split(" ")[1:2]:
        case ["200"]:
            return body
        case ["401" | "403"]:
            raise WaltzError(body.strip())
        case [_]:
            raise WaltzError(f"it answered {status!r}")
        case _:
            hint = "; does it use TLS, as http.tls says?" if tls is None else ""
            raise WaltzError(f"it does not speak HTTP{hint}")
