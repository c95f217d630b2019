"""Callbacks of a client that begins at the beginning of the log and applies nothing."""

from waltz.client.context import WaltzClientCallbacks
from waltz.client.transaction import Transaction


class NothingApplied(WaltzClientCallbacks):
    """What is looked at is the log, and not what an application makes of it."""

    def client_high_water_mark(self, partition_id: int) -> int:
        return -1

    def apply_transaction(self, transaction: Transaction) -> None:
        pass

    def uncaught_exception(self, partition_id: int, transaction_id: int, error: BaseException) -> None:
        raise error
