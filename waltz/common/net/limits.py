"""Limits of the cost of connections. Above a limit, connections are refused or closed."""

import logging
from dataclasses import dataclass

from waltz.common.config.schemas import ConnectionsConfig

logger = logging.getLogger(__name__)

HELLO_TIMEOUT_S = 10.0
"""Time limit of the TLS handshake, and again of the peer's hello (the original waits forever)."""

MAX_PAYLOAD_BYTES = 2**31 - 1
"""Maximum payload of the frame format."""

OPENING_PAYLOAD_BYTES = 64 << 10
"""Maximum frame of a peer before its first request that justifies larger frames."""

RESERVED_FILES = 256
"""Number of open files reserved for other purposes than connections: segments, ZooKeeper, logs."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """Limits of one port: first those of whole connections, then those of a connection's traffic."""

    max_connections: int = 10_000
    max_per_address: int = 10_000
    """Maximum connections from one address, so one host cannot take all places."""
    max_per_principal: int | None = None
    """Maximum connections of one principal from any addresses; ``None`` for no limit."""
    max_greeting: int = 1000
    """Maximum connections without a hello yet. Above the limit, the oldest one makes room if it is older than
    ``greeting_grace_s``: handshakes take a while when thousands of clients connect at once."""
    greeting_grace_s: float = HELLO_TIMEOUT_S / 2
    hello_timeout_s: float = HELLO_TIMEOUT_S
    max_payload_bytes: int = MAX_PAYLOAD_BYTES
    opening_payload_bytes: int | None = None
    """Maximum frame until the handler lifts the limit; ``None``: the final limit from the beginning."""
    abridged_type: int | None = None
    """Larger frames of this message type are abridged instead of refused: see
    :class:`~waltz.common.wire.frames.FrameSplitter`."""


@dataclass(frozen=True, slots=True)
class TrafficLimits:
    """Limits that all connections of all ports of a node share."""

    frame_timeout_s: float = 60.0
    """In each period of this length, an incomplete frame must end or grow by
    :data:`~waltz.common.net.guard.MIN_PROGRESS_BYTES`."""
    unread_timeout_s: float = 600.0
    """The same limit for a peer that does not read its messages."""
    max_receive_bytes: int = 256 << 20
    """Maximum memory of all incomplete frames."""
    max_send_bytes: int = 1 << 30
    """Maximum memory of all unsent bytes on connections with slow readers."""


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
    """The limits of a port by the configuration; ``setting`` is the key of the port's number of connections."""
    return ListenerLimits(
        max_connections=fit_to_open_files(config.max, setting, reserved_files),
        max_per_address=config.max_per_address,
        max_per_principal=config.max_per_principal,
        hello_timeout_s=config.hello_timeout_ms / 1000,
        max_payload_bytes=max_payload_bytes,
        opening_payload_bytes=OPENING_PAYLOAD_BYTES,
    )


def fit_to_open_files(wanted: int, setting: str, reserved_files: int = RESERVED_FILES) -> int:
    """Limit a number of connections to the files that the process may open, less ``reserved_files``.

    Args:
        wanted: The configured number of connections.
        setting: The configuration key, for the warning.
        reserved_files: Number of files for other purposes.
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
    """Raise the process's soft limit of open files to ``needed``, or as far as allowed; returns the new limit."""
    import resource  # not at the top of the module: clients on Windows need this module, but have no such package

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft
