"""Limits and times of the client that are not in the configuration file."""

from dataclasses import dataclass

from waltz.client.retry_policy import RetryPolicy

_PATIENT = RetryPolicy()


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """Defaults are for production; tests and simulations choose others.

    Examples:
        ```python
        options = waltz.ClientOptions(connect_timeout_s=3.0, list_request_bytes=4 << 20)
        async with waltz.connect(cluster, options=options) as client:
            await client.append(0, b"hello")
        ```
    """

    connect_timeout_s: float = 10.0
    """Time limit of name look-up, TCP, TLS and hello together."""
    reconnect_initial_s: float = 0.1
    reconnect_maximum_s: float = 5.0
    """Longest delay between failed connection attempts. A connection that worked is replaced at once."""
    keep_alive_interval_s: float = 600.0
    silence_limit_s: float = 30.0
    """A connection without traffic for this time is replaced, if the server was asked for a sign of life after half of
    the time."""

    mount_wait_s: float = 10.0
    """How long a submission waits for the mount of its partition (the original's limit)."""
    place_wait_s: float = 10.0
    """After this time without a free place the undecided appends are flushed (the original's limit)."""
    not_ready_retry_s: float = 0.5
    refused_initial_s: float = 0.05
    refused_maximum_s: float = 2.0
    """Longest pause of appends to a partition whose server said that it cannot be written at present."""
    ahead_retry_initial_s: float = 1.0
    ahead_retry_maximum_s: float = 30.0
    """Longest delay between mounts while servers say that the client has applied more than the log has."""
    mount_timeout_s: float = 15.0
    mount_timeout_maximum_s: float = 120.0
    """Servers drop mounts of connections that they take for stale, and never answer while a partition closes. So a
    mount without any progress is sent again on a new connection, after a time that doubles up to this one."""
    generation_flush_delays_s: tuple[float, ...] = (0.5, 1.0, 2.0)
    """Delays of flushes after a change of generation: the server drops appends until it knows the new generation."""

    apply_retry_initial_s: float = 0.01
    apply_retry_maximum_s: float = 5.0
    retry_policy: RetryPolicy = _PATIENT
    """Retry policy of contexts without one."""
    flush_timeout_s: float = 60.0
    """How long a flush, or the departure from a partition, waits for the decision of submissions."""
    feed_queue_high: int = 4096
    feed_queue_low: int = 1024
    """Limit of transactions of one partition that are received and not applied. Above ``feed_queue_low`` no more are
    requested: a server of version 5 then sends 2,048 more at most. At ``feed_queue_high``, which other servers may
    reach with the answer to a mount, the client stops reading from the server until ``feed_queue_low``."""

    rpc_timeout_s: float = 10.0
    """Deadline of high-water mark and administrative requests."""
    rpc_resend_s: float = 5.0
    """An unanswered request for transaction data is repeated after this time (a closing partition never answers)."""
    mark_resend_s: float = 2.0
    """A request for a high-water mark is repeated after this time (servers other than the owner never answer)."""
    rpc_sweep_interval_s: float = 0.5
    data_request_lifetime_s: float = 60.0
    data_retry_initial_s: float = 0.01
    data_retry_maximum_s: float = 5.0
    data_in_flight_maximum: int = 256
    """Maximum number of open requests for transaction data of one partition."""
    data_in_flight_bytes: int = 8 << 20
    """Maximum number of expected bytes of transaction data under way for one partition."""
    list_request_bytes: int = 1 << 20
    """Approximate size of the answer of a bulk read."""
    list_requests: int = 3
    """Bulk reads of one feed that are under way or wait to be consumed."""
    prefetch_maximum: int = 128
    """Number of transactions whose data is fetched ahead of an application that reads all of it."""

    behind_count: int = 1000
    """A lag of this number of transactions at two looks in a row, ``client.longWaitThreshold`` apart, without progress
    between them, is reported by the event ``behind``."""

    close_grace_s: float = 5.0
    """How long ``close`` waits for a transaction that is being applied."""
