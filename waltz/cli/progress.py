"""Progress bars for long commands at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_DELAY_S = 1.0
"""Minimum duration of work before a bar appears."""


def _unseen(_count: int) -> None:
    """Ignores progress: there is no bar without tqdm."""


@contextmanager
def progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
    """Show a bar on standard error, if that is a terminal and tqdm is installed.

    Call the yielded function with the amount of work done since the last call.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield _unseen
        return
    scaled = unit == "B"
    with tqdm(desc=what, total=total, unit=unit, unit_scale=scaled, disable=None, leave=False, delay=_DELAY_S) as bar:
        yield bar.update
