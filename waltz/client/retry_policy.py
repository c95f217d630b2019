"""Number and delays of the retries of a failed transaction."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """A :attr:`~waltz.client.context.TransactionContext.retry_policy` may differ from context to context.

    An attempt fails when one of its locks had changed or when it got lost on its way. After the first failures another
    attempt follows at once, built on the transaction that caused the failure. After further failures the delay grows
    (with jitter), so that clients do not compete for ever.

    Examples:
        ```python
        class Reservation(waltz.TransactionContext):
            retry_policy = waltz.RetryPolicy(max_attempts=3, time_limit_s=2.0)  # then on_completion(False)

            def partition_id(self, partition_count: int) -> int:
                return 0

            def execute(self, builder: waltz.TransactionBuilder) -> bool:
                builder.set_data(b"seat 4711")
                return True


        await client.submit(Reservation())
        ```
    """

    max_attempts: int | None = None
    """After this number of attempts ``on_completion(False)`` is called instead of another one; ``None``: no limit."""
    time_limit_s: float | None = None
    """No attempt begins later after the first failure: ``on_completion(False)`` follows. ``None``: no limit."""
    free_failures: int = 2
    """Number of failures that are followed by another attempt without a delay."""
    initial_delay_s: float = 0.001
    maximum_delay_s: float = 0.1

    def __post_init__(self) -> None:
        if self.max_attempts is not None and self.max_attempts < 1:
            raise ValueError(f"max_attempts must be at least 1, not {self.max_attempts}")
        if not 0 <= self.initial_delay_s <= self.maximum_delay_s:
            raise ValueError(f"delays must be 0 <= {self.initial_delay_s:g} <= {self.maximum_delay_s:g}")

    def allows_another(self, failures: int, since_first_failure_s: float) -> bool:
        """Whether another attempt follows after ``failures``, ``since_first_failure_s`` seconds after the first one."""
        if self.max_attempts is not None and failures >= self.max_attempts:
            return False
        return self.time_limit_s is None or since_first_failure_s < self.time_limit_s

    def delay_s(self, failures: int, jitter: float) -> float:
        """The delay before the next attempt; ``jitter`` is between 0 and 1."""
        repeated = failures - self.free_failures
        if repeated <= 0:
            return 0.0
        longest_s = min(self.maximum_delay_s, self.initial_delay_s * 2.0 ** min(repeated, 30))
        return longest_s * (0.5 + 0.5 * jitter)
