"""Delays between attempts."""

import random


class Backoff:
    """Doubling delays up to a maximum, shortened at random so that many waiters do not return at once.

    The class computes delays; the caller waits. The rule is the original's (sleep the interval, then double it, never
    above the maximum), plus jitter. A simulation passes its own ``random_source``, and so can be replayed.
    """

    __slots__ = ("_initial_s", "_interval_s", "_jitter", "_maximum_s", "_random")

    def __init__(
        self, initial_s: float, maximum_s: float, random_source: random.Random, *, jitter: float = 0.25
    ) -> None:
        """Make delays.

        Args:
            initial_s: The first delay.
            maximum_s: The longest delay.
            random_source: The source of the jitter.
            jitter: Maximum part of a delay that is taken off, 0 to 1.

        Raises:
            ValueError: A delay is not positive, or the jitter is impossible.
        """
        if initial_s <= 0 or maximum_s <= 0 or not 0 <= jitter <= 1:
            raise ValueError(f"impossible back-off: {initial_s} s up to {maximum_s} s, jitter {jitter}")
        self._initial_s = initial_s
        self._maximum_s = maximum_s
        self._jitter = jitter
        self._random = random_source
        self._interval_s = min(initial_s, maximum_s)

    def next_delay_s(self) -> float:
        """Seconds to wait before the next attempt."""
        delay_s = self._interval_s
        self._interval_s = min(2 * delay_s, self._maximum_s)
        return delay_s * (1 - self._jitter * self._random.random())

    def reset(self) -> None:
        """An attempt succeeded: begin again with the initial delay."""
        self._interval_s = min(self._initial_s, self._maximum_s)
