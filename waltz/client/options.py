"""Limits and times of the client that the configuration file does not name."""

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
    """Name look-up, TCP, TLS and hello together."""
    reconnect_initial_s: float = 0.1
    reconnect_maximum_s: float = 5.0
    """Delays between connection attempts that bring nothing. A connection that worked is replaced at once."""
    keep_alive_interval_s: float = 600.0
    silence_limit_s: float = 30.0
    """A connection on which nothing has moved for so long is replaced, if the server was asked for a sign of life when
    half of the time was over."""

    mount_wait_s: float = 10.0
    """How long a submission waits for its partition to be mounted (the original's limit)."""
    place_wait_s: float = 10.0
    """After so long without a free place the undecided appends are flushed (the original's limit)."""
    not_ready_retry_s: float = 0.5
    refused_initial_s: float = 0.05
    refused_maximum_s: float = 2.0
    """How long nothing is appended to a partition whose server said that it cannot be written at present."""
    ahead_retry_initial_s: float = 1.0
    ahead_retry_maximum_s: float = 30.0
    """Delays between mounts while servers say that the client has applied more than the log has."""
    mount_timeout_s: float = 15.0
    mount_timeout_maximum_s: float = 120.0
    """Servers drop mounts of connections that they take for stale, and never answer while a partition closes. So a
    mount without any sign of progress is sent again on a new connection; the time doubles while that brings nothing."""
    generation_flush_delays_s: tuple[float, ...] = (0.5, 1.0, 2.0)
    """After a change of generation appends are dropped until the server has heard of it too: flushes that find them."""

    apply_retry_initial_s: float = 0.01
    apply_retry_maximum_s: float = 5.0
    retry_policy: RetryPolicy = _PATIENT
    """For contexts that have none of their own."""
    flush_timeout_s: float = 60.0
    """How long flushing, and leaving a partition, wait for what was submitted to be decided."""
    feed_queue_high: int = 4096
    feed_queue_low: int = 1024
    """Transactions of one partition that are received and not applied. Above ``feed_queue_low`` no more are asked for:
    a server of version 5 then has promised 2,048 at most. At ``feed_queue_high``, which other servers may reach with
    the answer to a mount, nothing is read from the server until ``feed_queue_low``."""

    rpc_timeout_s: float = 10.0
    """Deadline of high-water mark and administrative requests."""
    rpc_resend_s: float = 5.0
    """A request for transaction data is sent again when none came for so long (a closing partition never answers)."""
    mark_resend_s: float = 2.0
    """A request for a high-water mark is sent again (servers that do not own the partition never answer)."""
    rpc_sweep_interval_s: float = 0.5
    data_request_lifetime_s: float = 60.0
    data_retry_initial_s: float = 0.01
    data_retry_maximum_s: float = 5.0
    data_in_flight_maximum: int = 256
    """Requests for transaction data of one partition that are on their way."""
    data_in_flight_bytes: int = 8 << 20
    """Bytes of transaction data that may be expected to be on their way to one partition."""
    list_request_bytes: int = 1 << 20
    """A bulk read asks for about so many bytes at a time."""
    list_requests: int = 3
    """Bulk reads of one feed that are on their way or wait to be consumed."""
    prefetch_maximum: int = 128
    """Transactions whose data is fetched ahead of an application that reads all of it."""

    behind_count: int = 1000
    """What is read or applied so many transactions behind the log at two looks in a row, which are
    ``client.longWaitThreshold`` apart, and came no nearer between them, is told of by the event ``behind``."""

    close_grace_s: float = 5.0
    """How long ``close`` lets a transaction that is being applied go on."""
