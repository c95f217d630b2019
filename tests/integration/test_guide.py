"""The pages that set up and operate a cluster, executed from their first line to their last."""

import asyncio
import os
import re
import sys
import threading
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import waltz
import waltz.blocking
from tests.integration.guide import DOCS, HOME, Hosts, commands_of, first_block_below, pattern_of, read_blocks
from waltz.client.mock import MockDriver
from waltz.storage.disk.files.files import OsFiles
from waltz.storage.disk.inspection import inspect_segment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PARTITIONS = 4
PAUSE_S = 0.1
APPEND_TIMEOUT_S = 120.0
"""Longer than any of the faults; an append that has not ended by then is a defect."""
DATA_BYTES = 200

NOT_EXECUTED = {
    "setup.md": [
        "apt-get install -y openjdk-17-jre-headless",
        "python3.11 -m venv /opt/waltz-0.1.0",
        "export WALTZ_CONFIG=/etc/waltz/cli.yml   # into ~/.profile",
    ],
    "runbook.md": [
        "python3.11 -m venv /opt/waltz-0.2.0",
        "/opt/waltz/bin/python salvage.py /backup/storage/waltz /etc/waltz/orders.yml",
    ],
}
"""The pages, in the order in which they are executed, with the first lines of what a test cannot do."""


Log = dict[tuple[int, int], bytes]
"""Data by partition and transaction."""


class Application:
    """Appends to all partitions from a thread of its own, and knows what was acknowledged."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self.acknowledged: Log = {}
        self._counts: Counter[int] = Counter()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    def begin(self) -> None:
        """Begin to append."""
        self._ending.clear()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def end(self) -> None:
        """End, when everything that was begun is acknowledged."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        try:
            asyncio.run(self._append_all())
        except BaseException as error:
            self._failure = error

    async def _append_all(self) -> None:
        async with waltz.connect(self._config) as client, asyncio.TaskGroup() as tasks:
            for partition_id in range(PARTITIONS):
                tasks.create_task(self._append(client, partition_id))

    async def _append(self, client: waltz.Client, partition_id: int) -> None:
        while not self._ending.is_set():
            data = os.urandom(DATA_BYTES)
            transaction_id = await client.append(partition_id, data, timeout_s=APPEND_TIMEOUT_S)
            self.acknowledged[partition_id, transaction_id] = data
            self._counts[partition_id] += 1
            await asyncio.sleep(PAUSE_S)

    def wait_for_appends(self) -> None:
        """Return when a few more have been acknowledged in each partition."""
        wanted = {partition_id: self._counts[partition_id] + 5 for partition_id in range(PARTITIONS)}
        deadline_s = time.monotonic() + APPEND_TIMEOUT_S
        while any(self._counts[each] < count for each, count in wanted.items()):
            assert self._failure is None
            assert time.monotonic() < deadline_s
            time.sleep(0.05)

    def read(self) -> Log:
        """The whole log."""
        return read_log(self._config)


def read_log(cluster: Path | MockDriver) -> Log:
    """All that is in the partitions of a cluster."""
    found: Log = {}
    with waltz.blocking.connect(cluster) as client:
        for partition_id in range(PARTITIONS):
            last = client.high_water_mark(partition_id)
            for transaction in client.feed(partition_id, after=-1, until=last):
                found[partition_id, transaction.transaction_id] = transaction.data
    return found


class Play:
    """The actions that comments of the pages call for."""

    def __init__(self, hosts: Hosts, application: Application) -> None:
        self._hosts = hosts
        self._application = application
        self.words = {
            "appends begin": application.begin,
            "appends end": application.end,
            "appends go on": application.wait_for_appends,
            "all is there": self._check_all,
            "what was backed up is there": self._check_backup,
            "the records are saved": self._save,
        }

    def _check_all(self) -> None:
        acknowledged = self._application.acknowledged
        assert acknowledged
        log = self._application.read()
        assert {place: log.get(place) for place in acknowledged} == acknowledged

    def _check_backup(self) -> None:
        """The log equals the copy of the storage, and holds everything acknowledged before the copy was made."""
        log = self._application.read()
        assert log == self._read_copy()
        acknowledged = self._application.acknowledged
        common = log.keys() & acknowledged.keys()
        assert len(common) > PARTITIONS
        assert {place: log[place] for place in common} == {place: acknowledged[place] for place in common}

    def _save(self) -> None:
        """The page's program appends what the copy holds to another cluster."""
        (program,) = (block.text for block in read_blocks("runbook.md") if block.language == "python")
        namespace: dict[str, Any] = {"__name__": "salvage"}
        exec(compile(program, "salvage.py", "exec"), namespace)
        other = MockDriver(PARTITIONS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
            namespace["main"](self._copy, other)
        assert read_log(other) == self._read_copy()

    @property
    def _copy(self) -> Path:
        return self._hosts.directory(HOME) / "backup/storage/waltz"

    def _read_copy(self) -> Log:
        """The records in the files of the backup."""
        found: Log = {}
        with closing(OsFiles()) as files:
            for partition_id in range(PARTITIONS):
                (path,) = (self._copy / str(partition_id)).glob("*.seg")
                with inspect_segment(files, path) as segment:
                    for check in segment.check_all():
                        assert check.record is not None
                        found[partition_id, check.transaction_id] = check.record.data
        return found


def first_append(program: str) -> None:
    """The application of the setup page."""
    namespace: dict[str, Any] = {}
    exec(compile(program, "first_append.py", "exec"), namespace)
    asyncio.run(namespace["main"]())


@pytest.mark.deep
def test_the_pages(tmp_path: Path) -> None:
    network = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}"
    with Hosts(tmp_path, network) as hosts, Application(hosts.directory(HOME) / "etc/waltz/orders.yml") as application:
        words = Play(hosts, application).words
        for page in NOT_EXECUTED:
            for block in read_blocks(page):
                if block.language in ("sh", "console", "on"):
                    hosts.play(block)
                elif block.language == "again on":
                    hosts.play(block._replace(language="sh", text=first_block_below(block.text)))
                elif block.language == "test":
                    words[block.text]()
                elif block.language == "python" and page == "setup.md":
                    first_append(hosts.translate(block.text, HOME))


@pytest.mark.parametrize("page", NOT_EXECUTED)
def test_nothing_is_left_out_unseen(page: str) -> None:
    blocks = read_blocks(page)
    assert [each.text.splitlines()[0] for each in blocks if each.language == "bash"] == NOT_EXECUTED[page]
    fences = [each.language for each in blocks if each.language not in ("on", "again on", "test")]
    assert set(fences) <= {"sh", "console", "bash", "mermaid", "python", "json"}
    text = (DOCS / page).read_text()
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(fences)
    (about_this_test,) = re.findall(r"^<!-- Blocks in `sh`", text, re.MULTILINE)
    assert about_this_test
    assert text.count("<!--") == 1 + len(blocks) - len(fences)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["a  b"], "a b\n"),
        (["port 6000, 3 of 3"], "port 41234, 3 of 3\n"),
        (["...", "last"], "last\n"),
        (["...", "last"], "first\nsecond\nlast\n"),
        (["first", "..."], "first\n"),
        (["{...}: ok"], "{1, 2}: ok\n"),
    ],
)
def test_what_is_shown_so(shown: list[str], printed: str) -> None:
    assert pattern_of(shown).fullmatch(printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        (["3 of 3"], "2 of 3\n"),
        (["Passed"], "Passed: all\n"),
        (["..."], "without an end"),
        (["...", "last"], "last\nand more\n"),
        ([], "anything\n"),
    ],
)
def test_what_is_not(shown: list[str], printed: str) -> None:
    assert not pattern_of(shown).fullmatch(printed)


def test_commands_with_their_output() -> None:
    block = "$ one \\\n> --more\noutput\n$ two\n"
    assert list(commands_of(block)) == [("one \\\n--more", ["output"]), ("two", [])]
