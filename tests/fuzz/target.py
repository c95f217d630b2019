"""What a target is."""

from collections.abc import Callable
from typing import NamedTuple


class Target(NamedTuple):
    """One decoder under test.

    ``check`` takes any bytes; it returns when the decoder behaved, also by refusing them with a documented error, and
    lets every other exception through. ``seeds`` are the inputs to begin with.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], list[bytes]]
    max_input_bytes: int = 4096
