"""Fixtures that several kinds of tests share."""

import asyncio
import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator, Mapping

import hypothesis
import pytest
import uvloop
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests import budget
from tests.unit.server.store.virtual_time import VirtualTimeLoop
from waltz.local.ports import PORTS_VARIABLE
from waltz.local.zookeeper import LocalZooKeeper

WORKER_PORTS = range(15_000, 32_000)
"""Divided among the processes that run tests side by side, so that a cluster's ports stay its own while it is down."""

SHORT_LIFE = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of the Java of Spark: in the minutes of the tests, thorough compilation costs more than it saves."""


def pytest_configure() -> None:
    """A shell starts programs in the background with SIGINT ignored, and what they start would ignore it as well."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(SPARK_SUBMIT_OPTS=SHORT_LIFE, SPARK_LAUNCHER_OPTS=SHORT_LIFE)
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is not None:
        size = len(WORKER_PORTS) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
        first = WORKER_PORTS[int(worker.removeprefix("gw")) * size]
        os.environ[PORTS_VARIABLE] = f"{first}-{first + size - 1}"


class ByGroup(LoadScopeScheduling):  # type: ignore[misc]  # a class of a package without types
    """Each group of tests goes to one process, the longest first."""

    def _split_scope(self, nodeid: str) -> str:
        return budget.group_of(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByGroup:
    """Where tests run side by side, those that share a cluster or Spark stay together."""
    config.option.loadscopereorder = False
    return ByGroup(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """What is collected stays to the end: it is not looked at for garbage meanwhile, nor, if it is much, ever after.

    Hypothesis looks, when its first test runs, for what refers to its random numbers, and would not see what is frozen.
    """
    gc.disable()
    try:
        result = yield
        if len(session.items) > budget.WORTH_A_TABLE:
            hypothesis.given(hypothesis.strategies.none())(lambda _: None)()
            gc.freeze()
        return result
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest begin first, where tests run side by side: of the deep ones, or of the others."""
    if os.environ.get("PYTEST_XDIST_WORKER") is None:
        return
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(budget.group_of(item.nodeid), []).append(item)
    deep = config.option.markexpr == "deep"
    chosen = [item.nodeid for item in items if (item.get_closest_marker("deep") is not None) == deep]
    seconds = budget.expected_by_group(chosen)
    items[:] = [item for group in sorted(groups, key=lambda group: -seconds.get(group, 0.0)) for item in groups[group]]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long each folder took, beside what is expected."""
    reports = [
        report
        for outcome in ("passed", "failed", "error")
        for report in terminalreporter.stats.get(outcome, [])
        if isinstance(report, pytest.TestReport)
    ]
    if len(reports) > budget.WORTH_A_TABLE:
        terminalreporter.section("seconds by folder")
        for line in budget.table(reports, budget.read()):
            terminalreporter.write_line(line)


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
    "virtual time": VirtualTimeLoop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests that wait for nothing outside their loop can be marked to run in virtual time.

    ``TEST_LOOP=uvloop`` has the others run on that loop; without it they run on asyncio's own.
    """
    name = "virtual time" if item.get_closest_marker("virtual_time") else os.environ.get("TEST_LOOP", "asyncio")
    return {name: LOOPS[name]}


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[LocalZooKeeper]:
    """A real ZooKeeper for the whole test run. Tests use roots of their own in it and do not stop it."""
    with LocalZooKeeper() as server:
        yield server
