"""Surveys the whole cluster while somebody watches.

A request gets the last survey at once, with its age, and starts the next survey when that is due. There is one survey
at a time for any number of watchers, and none without a watcher. After a long survey the pause is longer, but the page
never calls the last survey old. When a survey fails, the last good one stays.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.common.tasks import owned
from waltz.console.document import Facts, cluster_parts
from waltz.operations.survey.cluster_state import ClusterState, SurveyedPartition
from waltz.operations.survey.evidence import PARTITIONS_AT_ONCE

INTERVAL_S = 5.0
"""Minimum pause between two surveys."""
PAUSE_SHARE = 9
"""Length of the pause after a survey, as a multiple of the duration of that survey."""
MOST_PAUSE_S = 8.0
"""Maximum pause. Long surveys mostly wait for nodes that do not answer."""
LIMIT_S = 30.0
"""Time limit of a survey."""
RATE_MAX_S = 60.0
"""If the last survey is older, rates are unknown: they would describe the past."""

Look = Callable[[ClusterState | None], Awaitable[ClusterState]]
"""Reads the state of the cluster, with the rates since the given state. Raises ``WaltzError``."""


class Seen(NamedTuple):
    """The last survey, for the page."""

    number: int
    """Number of the survey; 0 before the first."""
    text: str
    """The document; empty before the first survey."""
    age_s: float | None
    surveying: bool
    error: str | None
    """Why the last survey failed."""


class Surveyor:
    """Keeps the last survey, and runs the next one."""

    def __init__(self, look: Look, facts: Facts) -> None:
        self._look = look
        self._facts = facts
        self._state: ClusterState | None = None
        self._text = ""
        self._number = 0
        self._next_number = int(
            time.time()
        )  # a page must not confuse the survey of a restarted server with an earlier one
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._next_s = 0.0
        self._closed = False

    def see(self) -> Seen:
        """The last survey. Begins the next one when that is due."""
        now_s = asyncio.get_running_loop().time()
        if self._task is None and now_s >= self._next_s and not self._closed:
            self._task = owned(self._survey(), "a survey for the console", self._failed)
        age_s = None if self._state is None else now_s - self._state.at_s
        return Seen(self._number, self._text, age_s, self._task is not None, self._error)

    @property
    def partition_ids(self) -> range:
        """The partitions of the last survey."""
        return range(0 if self._state is None else len(self._state.partitions))

    def parts(self, partition_ids: Sequence[int]) -> Iterator[str]:
        """The document about these partitions, and about all nodes. There must have been a survey."""
        state = self._state
        assert state is not None, "there was no survey"
        shown = tuple(state.partitions[partition_id] for partition_id in partition_ids)
        return cluster_parts(state._replace(partitions=shown, zone_risks=()), self._facts)

    def partition(self, partition_id: int) -> SurveyedPartition | None:
        """The state of a partition by the last survey."""
        known = () if self._state is None else self._state.partitions
        return known[partition_id] if partition_id < len(known) else None

    async def close(self) -> None:
        """End the running survey, if any."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def _failed(self, error: Exception) -> None:
        self._error = f"the survey has failed, see the log: {type(error).__name__}"

    async def _survey(self) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        before = self._state
        if before is not None and began_s - before.at_s > RATE_MAX_S:
            before = None
        try:
            async with asyncio.timeout(LIMIT_S):
                state = await self._look(before)
                text = await self._encode(state)
        except TimeoutError:
            self._error = f"the cluster could not be surveyed within {LIMIT_S:g} s"
        except WaltzError as error:
            self._error = str(error)
        else:
            self._state, self._text, self._error = state, text, None
            self._number = self._next_number
            self._next_number += 1
        finally:
            took_s = loop.time() - began_s
            self._next_s = loop.time() + max(INTERVAL_S, min(MOST_PAUSE_S, PAUSE_SHARE * took_s))
            self._task = None

    async def _encode(self, state: ClusterState) -> str:
        parts = []
        for part in cluster_parts(state, self._facts):
            parts.append(part)
            if len(parts) % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return "".join(parts)
