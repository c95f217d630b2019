"""The part of a simulation that is about access rules: operators who change them all the time, and what is checked."""

import asyncio
import contextlib
import functools
import itertools
import random
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from unittest import mock

from tests.simulation.access_checks import AccessChecks
from tests.simulation.access_model import UNUSABLE
from tests.simulation.access_observers import Observers
from tests.simulation.cluster import OPERATOR, ROOT, SimulatedCluster, World, principal_of
from tests.simulation.loop import Process, running_process
from waltz.common import pieces
from waltz.common.access import Right
from waltz.common.acl import changes
from waltz.common.acl.document import Document, Mode, Quota, Rule, write_document
from waltz.common.acl.store import StoredRules, read_applied, read_stored, write_partition_names, write_rules
from waltz.common.errors import WaltzError
from waltz.common.pieces import at_once
from waltz.common.zk.client import ZooKeeper
from waltz.common.zk.paths import ClusterPaths
from waltz.storage.node import node as storage_node

LOOK_INTERVAL_S = 0.25
"""Time between two looks at what servers have open."""

_PIECE_S = 0.0007
"""How long a piece of work takes that is done in turns of the loop: a few of them in each turn."""

_WAIT_S = 3.0
"""The patience of an operator who waits until all nodes apply a change."""

_RIGHTS = (
    (Right.APPEND,),
    (Right.APPEND,),
    (Right.APPEND, Right.READ, Right.METADATA),
    (Right.APPEND, Right.READ, Right.METADATA),
    (Right.READ,),
    (Right.FENCE,),
    (Right.APPEND, Right.READ, Right.METADATA, Right.DESCRIBE, Right.FENCE),
)
"""What operators take from applications, together."""

_MODES = (Mode.ENFORCE, Mode.ENFORCE, Mode.ENFORCE, Mode.AUDIT, Mode.AUDIT, Mode.OFF)

_NOT_USABLE = (
    b'{"version": 1, "mode": "off", "rules": [], "%s": true}' % UNUSABLE,
    b'{"version": 1, "mode": "off", "rules": [{"allow": "*", "to": "%s", "at": "*"}]}' % UNUSABLE,
    b'{"version": 1, "mode": "off", "rules": [{"allow": "*", "to": "read", "at": "%s"}]}' % UNUSABLE,
    b'{"version": 1, "mode": "off", "rules": [], %s' % UNUSABLE,
)
"""Documents that no node may use. One that does lets everything pass."""


class AccessScenario:
    """Operators, and the checks."""

    def __init__(self, world: World, cluster: SimulatedCluster, principals: list[str], readers: list[str]) -> None:
        """``principals`` are those of applications; ``readers`` may do everything, but their reads end at times."""
        self.checks = AccessChecks(world.fail, world.options.partitions, principal_of(OPERATOR))
        self._observers = Observers(self.checks, world.fail)
        self._world = world
        self._cluster = cluster
        self._principals = principals
        self._readers = readers
        self._draw = world.random("operators of access rules")

    @contextlib.contextmanager
    def observing(self) -> Iterator[None]:
        """While this lasts, everything is checked, and nothing but the seed decides when nodes have their turns."""
        world, clock = self._world, itertools.count()
        reads = SimpleNamespace(monotonic=lambda: next(clock) * _PIECE_S)
        draws = SimpleNamespace(Random=lambda: world.random(f"access rules of {_host()}"))
        with (
            self._observers.observing(world.ensemble.server, ClusterPaths(ROOT)),
            mock.patch.object(pieces, "time", reads),
            mock.patch.object(storage_node, "random", draws),
        ):
            yield

    def look(self) -> None:
        """Look at what servers have open, again and again."""
        for host in self._cluster.servers:
            if host.server is not None and host.process is not None and host.running and not host.paused:
                host.process.context.copy().run(self._observers.look, host.server)
        self._world.loop.call_later(LOOK_INTERVAL_S, self.look, context=self._world.network.context)

    async def operate(self) -> None:
        """Make rules after a while, in which nodes have none, and change them until the faults end."""
        await asyncio.sleep(self._draw.choice((0.0, 0.5, 3.0)) * self._draw.random())
        await self._cluster.as_operator(self._make)
        while self._world.loop.now_s < self._world.options.duration_s - 2.0:
            await asyncio.sleep(self._draw.choice((0.05, 0.5, 2.0)) * self._draw.random())
            await self._cluster.as_operator(functools.partial(self._change, self._draw.random() < 0.5))

    async def open_all(self) -> None:
        """The end: applications may do everything again, by rules that are enforced."""
        document = self._initial(Mode.ENFORCE)
        await self._cluster.as_operator(lambda process: self._write(process, lambda _: document, wait=False))

    # What operators do

    def _initial(self, mode: Mode) -> Document:
        servers = [principal_of(server.name) for server in self._cluster.servers]
        document = changes.initial(servers, self._readers)._replace(mode=mode)
        right = (Right.APPEND, Right.READ, Right.FENCE)
        half = len(self._principals) // 2
        groups = {"apps": tuple(self._principals[:half])} if half else {}
        holders = [*(["group:apps"] if half else []), *self._principals[half:]]
        rules = tuple(Rule(True, holder, right, "*") for holder in holders)
        return document._replace(groups=groups, rules=(*document.rules, *rules))

    async def _make(self, process: Process) -> None:
        zookeeper = await self._world.ensemble.connect(process, 30.0)
        document = self._initial(self._draw.choice((Mode.AUDIT, Mode.ENFORCE, Mode.ENFORCE)))
        count = self._world.options.partitions
        while (stored := await read_stored(zookeeper, ROOT)) is None or stored.names_data is None:
            try:
                if stored is None:
                    await write_rules(zookeeper, ROOT, document, None, count)
                else:
                    await write_partition_names(zookeeper, ROOT, {"some": "0"}, stored, count)
            except WaltzError as error:
                self._say(f"does not make rules: {error}")
                await asyncio.sleep(0.5)
        self._say(f"has made rules: mode {document.mode}")
        await zookeeper.close()

    async def _change(self, wait: bool, process: Process) -> None:
        way, draw = self._draw.random(), self._draw
        if way < 0.45:
            rule = Rule(False, draw.choice(self._those_who_lose()), draw.choice(_RIGHTS), self._some_partitions())
            await self._write(process, lambda document: _denying(document, rule), wait)
        elif way < 0.65:
            await self._write(process, lambda document: _pardoning(document, draw), wait)
        elif way < 0.75:
            mode = draw.choice(_MODES)
            await self._write(process, lambda document: changes.with_mode(document, mode, None), wait)
        elif way < 0.82:
            mode, place = draw.choice(_MODES), str(draw.randrange(self._world.options.partitions))
            await self._write(process, lambda document: changes.with_mode(document, mode, place), wait)
        elif way < 0.92:
            quota = self._some_quota()
            await self._write(process, lambda document: _limiting(document, quota, draw), wait)
        elif way < 0.95:
            await self._rename(process)
        else:
            await self._spoil(process)

    def _those_who_lose(self) -> list[str]:
        all_of_them = "group:apps" if len(self._principals) > 1 else "*"
        return [*self._principals, *self._principals, all_of_them, *self._readers]

    def _some_partitions(self) -> str:
        last = self._world.options.partitions - 1
        return self._draw.choice(("*", "*", str(self._draw.randint(0, last)), f"0-{last}", "some"))

    def _some_quota(self) -> Quota:
        draw = self._draw
        holder = draw.choice((*self._principals, "*"))
        appends = draw.choice((None, 3, 10, 30))
        size = draw.choice((None, 5, 30)) if appends else draw.choice((5, 30))
        limit_bytes = None if size is None else size * self._world.options.data_size_bytes
        return Quota(holder, "*", appends, limit_bytes)

    async def _write(self, process: Process, change: Callable[[Document], Document], wait: bool) -> None:
        """Change the rules as a command does."""
        zookeeper = await self._world.ensemble.connect(process, 30.0)
        try:
            stored = await self._usable(zookeeper)
            document, _ = at_once(stored.read())
            wanted = change(document)
            if wanted != document:
                place = await write_rules(zookeeper, ROOT, wanted, stored, self._world.options.partitions)
                difference = "; ".join(changes.difference(document, wanted))
                self._say(f"makes version {place.version}: {difference}")
                if wait:
                    await self._wait(zookeeper, place.rules)
        except WaltzError as error:
            self._say(f"changes nothing: {error}")
        await zookeeper.close()

    async def _usable(self, zookeeper: ZooKeeper) -> StoredRules:
        stored = await read_stored(zookeeper, ROOT)
        assert stored is not None, "they are made first"
        if UNUSABLE in stored.data:  # an operator was interrupted while they were spoiled
            await zookeeper.set(ClusterPaths(ROOT).access_rules, write_document(self._initial(Mode.ENFORCE)))
            stored = await read_stored(zookeeper, ROOT)
            assert stored is not None, "they are never deleted"
        return stored

    async def _wait(self, zookeeper: ZooKeeper, rules: int) -> None:
        for _ in range(int(_WAIT_S / 0.1)):
            applied = await read_applied(zookeeper, ROOT)
            if all(place.rules >= rules for place in applied.values()):
                self._say(f"hears that {len(applied)} nodes apply them")
                return
            await asyncio.sleep(0.1)

    async def _rename(self, process: Process) -> None:
        zookeeper = await self._world.ensemble.connect(process, 30.0)
        count = self._world.options.partitions
        first = self._draw.randrange(count)
        names = {"some": f"{first}-{self._draw.randint(first, count - 1)}"}
        try:
            await write_partition_names(zookeeper, ROOT, names, await self._usable(zookeeper), count)
            self._say(f"names partitions {names}")
        except WaltzError as error:
            self._say(f"names no partitions: {error}")
        await zookeeper.close()

    async def _spoil(self, process: Process) -> None:
        """Write rules that cannot be used, past the commands, and write the former ones again after a while."""
        zookeeper = await self._world.ensemble.connect(process, 30.0)
        try:
            stored = await self._usable(zookeeper)
            path = ClusterPaths(ROOT).access_rules
            data = self._draw.choice(_NOT_USABLE)
            await zookeeper.set(path, data)
            self._say(f"spoils the rules: {data!r}")
            await asyncio.sleep(self._draw.choice((0.1, 1.0, 4.0)) * self._draw.random())
            await zookeeper.set(path, stored.data)
            self._say("writes the former rules again")
        except WaltzError as error:
            self._say(f"spoils nothing: {error}")
        await zookeeper.close()

    def _say(self, what: str) -> None:
        self._world.trace.line("RULES", what)


def _denying(document: Document, rule: Rule) -> Document:
    return document._replace(rules=(*document.rules, rule))


def _pardoning(document: Document, draw: random.Random) -> Document:
    """Without some of the rules that deny."""
    return document._replace(rules=tuple(rule for rule in document.rules if rule.allows or draw.random() < 0.4))


def _limiting(document: Document, quota: Quota, draw: random.Random) -> Document:
    """With a quota, or without any."""
    if document.quotas and draw.random() < 0.4:
        return document._replace(quotas=())
    return changes.with_quota(document, quota)


def _host() -> str:
    process = running_process()
    return "-" if process is None else process.host
