"""Elections for threads."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager

from waltz.blocking.loop import Calls
from waltz.client import election
from waltz.client.election import Leader, Leadership
from waltz.table.face.threads import iterated


class Election:
    """The calls of :class:`waltz.Election`, each blocking until it is done, with the same errors.

    Examples:
        ```python
        with waltz.blocking.connect(cluster, session_write=True) as client:
            with client.election(0, "worker 7").campaign() as leadership:
                client.append(0, b"nobody else can write")
                assert not leadership.over
        ```
    """

    def __init__(self, calls: Calls, made: election.Election) -> None:
        self._calls = calls
        self._election = made

    @contextmanager
    def campaign(self) -> Iterator[Leadership]:
        """Wait until this client leads, and lead until the block is left: ``with election.campaign() as leadership:``.

        See :class:`waltz.Election`.
        """
        campaign = self._election.campaign()
        leadership = self._calls.run(campaign.__aenter__())
        try:
            yield leadership
        finally:
            if not self._calls.closed:
                self._calls.run(campaign.__aexit__(None, None, None))

    def observe(self) -> Generator[Leader | None, None, None]:
        """The leader at first, and then at each change; ``None`` while there is none. Without an end."""
        return iterated(self._calls.run, self._election.observe(), 1)
