"""Metrics of the load of a node's ports, for Prometheus."""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from waltz.common.metrics.registry import Description, Readings, Registry
from waltz.common.net.listener import Listener
from waltz.common.net.token_problems import TokenProblem

P = TypeVar("P")

_LABELS = ("port",)


class Guarded(Protocol):
    """A port that may have TLS and accept tokens."""

    @property
    def refused_tokens(self) -> Mapping[TokenProblem, int]: ...

    @property
    def failed_handshakes(self) -> int: ...

    @property
    def unusable_stores(self) -> bool: ...


_READ: dict[Description, Callable[[Listener], int]] = {
    Description("waltz_connections", "gauge", _LABELS, "Open connections, including those without a hello."): (
        lambda listener: len(listener.channels)
    ),
    Description("waltz_connections_accepted_total", "counter", _LABELS, "Accepted connections."): (
        lambda listener: listener.accepted_count
    ),
    Description(
        "waltz_connections_refused_total",
        "counter",
        _LABELS,
        "Refused connections: too many altogether, from one address, or of one principal.",
    ): lambda listener: listener.refused_count,
    Description(
        "waltz_received_bytes_total", "counter", _LABELS, "Bytes read from peers, without the overhead of TLS."
    ): (lambda listener: listener.received_bytes),
    Description("waltz_sent_bytes_total", "counter", _LABELS, "Bytes written to peers, without the overhead of TLS."): (
        lambda listener: listener.sent_bytes
    ),
}

_READ_OF_ALL: dict[Description, Callable[[Guarded], int]] = {
    Description(
        "waltz_tls_handshake_failures_total",
        "counter",
        _LABELS,
        "Failed TLS handshakes: no trusted certificate, no TLS at the peer, or silence.",
    ): lambda port: port.failed_handshakes,
    Description(
        "waltz_tls_stores_unusable",
        "gauge",
        _LABELS,
        "1 while a changed key store, trust store or revocation list is unusable, and the old one stays in use; also "
        "while a revocation list has expired.",
    ): lambda port: int(port.unusable_stores),
}

REFUSED_TOKENS = Description(
    "waltz_tokens_refused_total",
    "counter",
    (*_LABELS, "reason"),
    "Refused tokens, and those that count no more on an open connection, by the reason: "
    f"{', '.join(f'`{problem}`' for problem in TokenProblem)}.",
)

DESCRIPTIONS = (*_READ, *_READ_OF_ALL, REFUSED_TOKENS)


def watch_ports(registry: Registry, listeners: Mapping[str, Listener], http: Guarded | None = None) -> None:
    """Register the metrics of ports by their names, and those of the HTTP port if it identifies readers."""
    for description, read in _READ.items():
        registry.reading(description, _reading(listeners, read))
    ports: dict[str, Guarded] = {**listeners, **({} if http is None else {"http": http})}
    for of_all, look in _READ_OF_ALL.items():
        registry.reading(of_all, _reading(ports, look))
    registry.reading(REFUSED_TOKENS, lambda: _refused_tokens(ports))


def _refused_tokens(ports: Mapping[str, Guarded]) -> Readings:
    for name, port in ports.items():
        for problem, count in port.refused_tokens.items():
            yield (name, problem.value), count


def _reading(ports: Mapping[str, P], read: Callable[[P], int]) -> Callable[[], Readings]:
    return lambda: [((name,), read(port)) for name, port in ports.items()]
