"""Limits of the cost of connections; above them connections are refused or closed."""

import logging
from dataclasses import dataclass

from waltz.common.config.schemas import ConnectionsConfig

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
"""Time limit of the TLS handshake, and again of the peer's hello (the original waits for ever)."""

MAX_PAYLOAD_BYTES = 2**31 - 1
"""Largest payload of the frame format."""

OPENING_PAYLOAD_BYTES = 64 << 10
"""Largest frame of a peer that has not yet sent a request that justifies larger ones."""

RESERVED_FILES = 256
"""Open files reserved for everything but connections: segments, ZooKeeper, logs."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one port: first those of whole connections, then those of a connection's traffic."""

    max_connections: int = 10_000
    max_per_address: int = 10_000
    """Connections from one address, so that one host cannot take all places."""
    max_per_principal: int | None = None
    """Connections of one principal from any addresses; ``None`` for any number."""
    max_greeting: int = 1000
    """Connections that have not said hello yet; the oldest of them make room for new ones, once they have had
    ``greeting_grace_s``: when thousands of clients come at once, their handshakes take a while."""
    greeting_grace_s: float = HELLO_TIMEOUT_S / 2
    hello_timeout_s: float = HELLO_TIMEOUT_S
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    opening_payload_bytes: int | None = None
    """Largest frame until the handler lifts the limit; ``None``: the final limit from the beginning."""
    abridged_type: int | None = None
    """Larger frames of this message type are abridged instead of refused: see
    :class:`~waltz.common.wire.frames.FrameSplitter`."""


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """Limits that all connections of all ports of a node share."""

    frame_timeout_s: float = 60.0
    """A frame that has begun must be complete after this time, or have brought
    :data:`~waltz.common.net.guard.MIN_PROGRESS_BYTES` more each time that it has passed."""
    unread_timeout_s: float = 600.0
    """The same limit for a peer that does not read its messages."""
    max_receive_bytes: int = 256 << 20
    """Memory of all incomplete frames."""
    max_send_bytes: int = 1 << 30
    """Memory of all unsent bytes on connections whose peers lag."""


def traffic_limits(config: ConnectionsConfig) -> TrafficLimits:
    """The limits of a configuration."""
    return TrafficLimits(
        frame_timeout_s=config.frame_timeout_ms / 1000,
        unread_timeout_s=config.unread_timeout_ms / 1000,
        max_receive_bytes=config.receive_memory_bytes,
        max_send_bytes=config.send_memory_bytes,
    )


def listener_limits(
    config: ConnectionsConfig, setting: str, max_payload_bytes: int, *, reserved_files: int = RESERVED_FILES
) -> ListenerLimits:
    """The limits that a configuration asks for, for the port whose connections ``setting`` counts."""
    return ListenerLimits(
        max_connections=fit_to_open_files(config.max, setting, reserved_files),
        max_per_address=config.max_per_address,
        max_per_principal=config.max_per_principal,
        hello_timeout_s=config.hello_timeout_ms / 1000,
        max_payload_bytes=max_payload_bytes,
        opening_payload_bytes=OPENING_PAYLOAD_BYTES,
    )


def fit_to_open_files(wanted: int, setting: str, reserved_files: int = RESERVED_FILES) -> int:
    """``wanted`` connections, or as many as the process may open files beside ``reserved_files``.

    ``setting`` is the configuration key that asks for them, for the warning when it cannot be met.
    """
    import resource

    soft = raise_open_files(wanted + reserved_files)
    if soft == resource.RLIM_INFINITY or soft >= wanted + reserved_files:
        return wanted
    possible = min(wanted, max(soft - reserved_files, soft // 2))
    logger.warning(
        "%s is %d, but this process may open only %d files: at most %d connections; raise its limit (ulimit -n)",
        setting,
        wanted,
        soft,
        possible,
    )
    return possible


def raise_open_files(needed: int) -> int:
    """Raise the process's soft limit of open files to ``needed``, or as far as it may; returns the limit then."""
    import resource  # not at the top: clients need this module where there is none, on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
