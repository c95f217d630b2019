"""What the partitions of one engine share."""

import asyncio
import random
from dataclasses import dataclass

from waltz.client.engine.feed import Applier
from waltz.client.engine.submission import Limits
from waltz.client.engine.tasks import TaskOwner
from waltz.client.options import ClientOptions


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Made by the engine from its environment."""

    applier: Applier | None
    max_concurrent_transactions: int
    limits: Limits
    retries: bool
    applying: asyncio.Semaphore
    """Bounds how many partitions wait for their applier at a time."""
    tasks: TaskOwner
    options: ClientOptions
    random_source: random.Random
