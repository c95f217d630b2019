"""What the partitions of one client share."""

import asyncio
import random
from dataclasses import dataclass

from waltz.client.context import WaltzClientCallbacks
from waltz.client.engine.tasks import TaskOwner
from waltz.client.options import ClientOptions


@dataclass(frozen=True, slots=True)
class PartitionSettings:
    """Made by the client from its configuration."""

    callbacks: WaltzClientCallbacks
    max_concurrent_transactions: int
    max_transaction_size_bytes: int
    max_locks: int
    retries: bool
    applying: asyncio.Semaphore
    """Bounds how many partitions await ``apply_transaction`` at a time."""
    tasks: TaskOwner
    options: ClientOptions
    random_source: random.Random
