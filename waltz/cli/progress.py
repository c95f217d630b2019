"""Progress bars for long commands at a terminal."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_DELAY_S = 1.0
"""Shorter work shows no bar."""


def _unseen(_count: int) -> None:
    """Without tqdm there is no bar."""


@contextmanager
def progress(what: str, total: int | None, unit: str) -> Iterator[Callable[[int], object]]:
    """Show a bar on standard error if that is a terminal; the yielded function takes the amount of further work done.

    Without tqdm nothing is shown.
    """
    try:
        from tqdm import tqdm
    except ImportError:
        yield _unseen
        return
    scaled = unit == "B"
    with tqdm(desc=what, total=total, unit=unit, unit_scale=scaled, disable=None, leave=False, delay=_DELAY_S) as bar:
        yield bar.update
