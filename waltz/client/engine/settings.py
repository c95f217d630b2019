"""The common settings of the partitions of one engine."""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from waltz.client.engine.partition.feed import Applier
from waltz.client.engine.submission import Limits
from waltz.client.engine.tasks import TaskOwner
from waltz.client.events import Events
from waltz.client.options import ClientOptions
from waltz.common.config.schemas import ClientConfig


class SessionSettings(NamedTuple):
    """The settings of write sessions."""

    enabled: bool
    exclusive: bool
    """Whether the session is exclusive: no other client may write."""
    may_go_without: bool
    """Whether appends are sent without a session to servers without write sessions."""
    timeout_s: float
    """Time limit of a fence, and of the renewal of a session."""

    @classmethod
    def of(cls, config: ClientConfig) -> Self:
        """The settings of a configuration."""
        return cls(
            enabled=config.enable_session_write,
            exclusive=config.enable_exclusive_session,
            may_go_without=config.session_fallback == "plain",
            timeout_s=config.session_timeout_ms / 1000,
        )


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """The settings of a partition, made by the engine from its environment."""

    applier: Applier | None
    max_concurrent_transactions: int
    limits: Limits
    retries: bool
    sessions: SessionSettings
    applying: asyncio.Semaphore
    """Limits the number of partitions whose applier runs at the same time."""
    tasks: TaskOwner
    options: ClientOptions
    random_source: random.Random
    events: Events = field(default_factory=Events)
    clock: Callable[[], float] = time.monotonic
    """The clock for durations, finer than the loop's clock."""
