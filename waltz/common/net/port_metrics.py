"""Metrics of the load of a node's ports, for Prometheus."""

from collections.abc import Callable, Mapping

from waltz.common.metrics.registry import Description, Readings, Registry
from waltz.common.net.listener import Listener

_LABELS = ("port",)

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
    Description(
        "waltz_tls_handshake_failures_total",
        "counter",
        _LABELS,
        "Failed TLS handshakes: no trusted certificate, no TLS at the peer, or silence.",
    ): lambda listener: listener.failed_handshakes,
    Description(
        "waltz_tokens_refused_total",
        "counter",
        _LABELS,
        "Refused tokens, and those that have expired on an open connection.",
    ): lambda listener: listener.refused_token_count,
    Description(
        "waltz_tls_stores_unusable",
        "gauge",
        _LABELS,
        "1 while a changed key store or trust store is unusable; the old one stays in use.",
    ): lambda listener: int(listener.unusable_stores),
}

DESCRIPTIONS = tuple(_READ)


def watch_ports(registry: Registry, listeners: Mapping[str, Listener]) -> None:
    """Register the metrics of the ports with these names."""
    for description, read in _READ.items():
        registry.reading(description, _reading(listeners, read))


def _reading(listeners: Mapping[str, Listener], read: Callable[[Listener], int]) -> Callable[[], Readings]:
    return lambda: [((name,), read(listener)) for name, listener in listeners.items()]
