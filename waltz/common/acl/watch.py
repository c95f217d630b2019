"""A node follows the access rules in ZooKeeper, and says there which ones it applies."""

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Collection
from typing import Final

from waltz.common.acl.audit import Event, Outcome
from waltz.common.acl.document import Mode
from waltz.common.acl.enforcement import Applied, Row, RuleAccess
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.store import Place, read_stored
from waltz.common.cluster.following import Follower
from waltz.common.metrics.registry import Description, Readings, Registry
from waltz.common.pieces import in_turns
from waltz.common.quiet_log import OutageLog
from waltz.common.zk.client import NodeExistsError, NoNodeError, NotPermittedError, State, ZooKeeper
from waltz.common.zk.paths import ClusterPaths

logger = logging.getLogger(__name__)

REFUSED: Final = Description(
    "waltz_acl_refused_total",
    "counter",
    ("right", "mode"),
    "Requests without their right; those of mode audit were executed. Only with access rules.",
)
OVER_QUOTA: Final = Description(
    "waltz_acl_over_quota_appends_total",
    "counter",
    ("action", "mode"),
    "Appends that a quota refused, and those that were taken with the request to wait (delayed). In mode audit all of "
    "them were executed. Only servers with access rules count any.",
)
VERSION: Final = Description(
    "waltz_acl_version",
    "gauge",
    (),
    "Version of the access rules that the node applies; -1 before any. Only with access rules.",
)
NAMES_VERSION: Final = Description(
    "waltz_acl_names_version",
    "gauge",
    (),
    "Version of the names of partitions that the node applies; -1 without any. Only with access rules.",
)
AGE: Final = Description(
    "waltz_acl_age_seconds",
    "gauge",
    (),
    "Time since the node has applied its access rules; none before that. Only with access rules.",
)
MODE: Final = Description(
    "waltz_acl_mode",
    "gauge",
    ("mode",),
    "1 for the mode of the cluster by the applied rules: off, audit or enforce. Only with access rules.",
)
UNUSABLE: Final = Description(
    "waltz_acl_unusable",
    "gauge",
    (),
    "1 while the stored access rules cannot be used. Only with access rules.",
)
AUDIT_LOST: Final = Description(
    "waltz_acl_audit_lost_total",
    "counter",
    (),
    "Lines of the audit log that could not be written. Only with an audit log.",
)
_ROLES: Final = "server, storage, enforcer or admin"

DESCRIPTIONS: Final = (REFUSED, OVER_QUOTA, VERSION, NAMES_VERSION, AGE, MODE, UNUSABLE, AUDIT_LOST)


class RuleWatch:
    """Keeps the rules of an access up to date. What cannot be used is logged, and what held before holds on."""

    def __init__(
        self,
        zookeeper: ZooKeeper,
        root: str,
        access: RuleAccess,
        name: str,
        partition_count: int,
        random_source: random.Random,
        *,
        tells: bool = True,
    ) -> None:
        """``name`` is that of the node, such as ``server-HOST:PORT``; ``tells``: whether ZooKeeper gets to know it."""
        self.on_lost: Callable[[Collection[Row]], None] = _nothing
        """Called with rights that have become fewer."""
        self.unusable = False
        """Whether the stored rules cannot be used."""
        self._zookeeper = zookeeper
        self._root = root
        self._access = access
        paths = ClusterPaths.of(root)
        self._parent, self._path = paths.applied_rules, paths.applied_rules_of(name)
        self._partition_count = partition_count
        self._tells = tells
        self._place: Place | None = None
        self._names_version = -1
        self._applied_s = 0.0
        self._told: tuple[int | None, Place] | None = None
        """The session and the rules that the node's znode says."""
        self._outage = OutageLog(logger, asyncio.get_running_loop().time)
        self._follower = Follower("the access rules", self._catch_up, random_source)
        self._remove_listener: Callable[[], None] | None = None

    async def start(self) -> None:
        """Read the rules and follow them from now on. Raises ``WaltzError`` when ZooKeeper cannot be read."""
        try:
            await self._catch_up()
        except NotPermittedError as error:
            raise NotPermittedError(f"{error}; the role of a process with access rules is {_ROLES}") from None
        self._remove_listener = self._zookeeper.add_listener(self._session_changed)
        self._follower.start()

    async def close(self) -> None:
        """Stop following."""
        if self._remove_listener is not None:
            self._remove_listener()
        await self._follower.close()

    def add_metrics(self, registry: Registry) -> None:
        """Have the counts and the version told."""
        registry.reading(REFUSED, self._refused)
        registry.reading(OVER_QUOTA, self._access.throttles.counts)
        registry.reading(VERSION, lambda: [((), -1 if self._place is None else self._place.version)])
        registry.reading(NAMES_VERSION, lambda: [((), self._names_version)])
        registry.reading(AGE, lambda: [] if self._place is None else [((), time.monotonic() - self._applied_s)])
        registry.reading(MODE, self._mode)
        registry.reading(UNUSABLE, lambda: [((), int(self.unusable))])

    def _refused(self) -> Readings:
        yield from self._access.refusals.counts()

    def _mode(self) -> Readings:
        applied = self._access.applied
        if applied is not None:
            for mode in Mode:
                yield (mode.value,), int(mode is applied.rules.document.mode)

    def _session_changed(self, state: State) -> None:
        if state is State.CONNECTED:  # perhaps with another session, which has to say again what the node applies
            self._follower.changed()

    async def _catch_up(self) -> None:
        try:
            await self._read()
        except AclError as error:
            self.unusable = True
            held = "no rules" if self._place is None else f"version {self._place.version}"
            self._outage.failed(f"the access rules cannot be used, and {held} hold on: {error}")
            self._note(Outcome.FAILED, f"{error}; {held} hold on")
        else:
            self.unusable = False
            self._outage.over()
        if self._tells:
            await self._tell()

    async def _read(self) -> None:
        changed = self._follower.changed
        stored = await read_stored(self._zookeeper, self._root, changed, changed)
        if stored is None:
            raise AclError("there are none; waltz acl init makes some")
        if stored.place == self._place:
            return
        began_s = time.monotonic()
        rules = await in_turns(stored.compile(self._partition_count))
        lost = await in_turns(self._access.apply(Applied(stored.place.version, rules)))
        self.on_lost(lost)
        before, self._place = self._place, stored.place
        self._names_version = -1 if stored.names_stat is None else stored.names_stat.version
        self._applied_s = time.monotonic()
        count, mode = len(rules.document.rules), rules.document.mode
        former = "none" if before is None else f"version {before.version}"
        self._note(Outcome.DONE, f"version {stored.place.version}, mode {mode}, {count} rules; before: {former}")
        logger.info(
            "access rules version %d are applied, mode %s, %d rules, in %.0f ms",
            stored.place.version,
            mode,
            count,
            1000 * (time.monotonic() - began_s),
        )

    def _note(self, outcome: Outcome, detail: str) -> None:
        """Note a change of the rules. Who has made it, only ZooKeeper knows."""
        self._access.audit.note(Event(None, "apply access rules", None, outcome, ""), (None,), lambda: detail)

    async def _tell(self) -> None:
        """Say which rules are applied, in an ephemeral node of the present session."""
        place, session = self._place, self._zookeeper.session_id
        if place is None or self._told == (session, place):
            return
        with contextlib.suppress(NodeExistsError, NoNodeError):
            await self._zookeeper.create(self._parent, None)
        with contextlib.suppress(NoNodeError):
            await self._zookeeper.delete(self._path)  # the session before may have left one
        try:
            await self._zookeeper.create(self._path, place.encode(), ephemeral=True)
        except NoNodeError:
            return  # the rules were deleted; the next ones are told
        self._told = (session, place)


def _nothing(rows: Collection[Row]) -> None:
    """Connections whose rights are asked for with each request need no call."""
