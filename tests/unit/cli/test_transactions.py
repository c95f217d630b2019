"""How transactions look on a line, and what is taken for locks and ids."""

import argparse
import asyncio
import io
import json
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import waltz
from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.cli.inputs import interrupting, piped
from waltz.asynchronous import connect
from waltz.cli import partition, transactions
from waltz.cli.main import main, parser
from waltz.client.errors import AppendManyError, LockConflict, NotAppendedError, NotGuaranteedError, OutcomeUnknownError
from waltz.client.locks import PartitionLocalLock
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.common.errors import WaltzError
from waltz.common.ids import ReqId
from waltz.common.records import Record


class Shell:
    """Appends lines to partition 0 of a cluster in memory that takes transactions of at most 100 bytes."""

    def __init__(self, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions = MockServerPartition.create(1)
        self.driver = MockDriver(self.partitions)
        self._config = config
        self.config = str(config)
        self._monkeypatch = monkeypatch

    def __call__(self, lines: Iterable[bytes], *arguments: str) -> int:
        data = b"".join(line + b"\n" for line in lines)
        self._monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
        return self.run("--lines", *arguments)

    def run(self, *arguments: str) -> int:
        return main(["append", "-c", str(self._config), "-p", "0", *arguments])

    def connect(self, *_: object, **__: object) -> waltz.Client:
        """In place of a connection to a cluster."""
        return connect(self.driver, max_transaction_size_bytes=100)

    def log(self) -> list[bytes]:
        """The data of all transactions."""

        async def read() -> list[bytes]:
            async with self.connect() as client:
                mark = await client.high_water_mark(0)
                return [each.data async for each in client.feed(0, after=-1, until=mark)]

        return asyncio.run(read())


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    async def zookeeper(*_: object, **__: object) -> MemoryZooKeeper:
        return await MemoryZooKeeperServer().connect()

    async def check(*_: object) -> None:
        pass

    config = tmp_path / "cli.yml"
    config.write_text("zookeeper.connectString: nowhere\ncluster.root: /waltz\n")
    made = Shell(config, monkeypatch)
    monkeypatch.setattr("waltz.common.zk.kazoo_client.connect_configured", zookeeper)
    monkeypatch.setattr("waltz.asynchronous.connect", made.connect)
    monkeypatch.setattr(transactions, "check_partition_ids", check)
    return made


def record(data: bytes) -> Record:
    return Record(41, ReqId.of(1, 1, 3, 1), 5, data, 0)


@pytest.mark.parametrize(
    ("data", "shown"),
    [(b"an order", " an order"), (b"", ""), (b"two\nlines", ' "two\\nlines"'), (b"\xff\x00", " 0xff00")],
)
def test_a_transaction_on_a_line(data: bytes, shown: str) -> None:
    assert transactions.line_of(3, record(data), None) == f"3/41 header=5 size={len(data)}{shown}"


@given(st.binary(max_size=60), st.integers(1, 100))
def test_a_line_is_one_line_that_fits(data: bytes, width: int) -> None:
    line = transactions.line_of(3, record(data), width)
    assert len(line) <= width
    assert len(line.splitlines()) <= 1
    assert transactions.line_of(3, record(data), None).startswith(line.removesuffix("…"))


def test_locks() -> None:
    assert transactions._lock("a:b:-7") == PartitionLocalLock("a:b", -7)
    for wrong in ("account", "account:", "account:x", f"account:{1 << 63}"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a lock like account:17"):
            transactions._lock(wrong)


def test_ids() -> None:
    assert transactions._ids("7") == (7, 7)
    assert transactions._ids("7-12") == (7, 12)
    for wrong in ("", "x", "7-", "-7", "7-x"):
        with pytest.raises(argparse.ArgumentTypeError, match="not a transaction id"):
            transactions._ids(wrong)
    with pytest.raises(argparse.ArgumentTypeError, match="the first id is above the last one"):
        transactions._ids("12-7")


@pytest.mark.parametrize("data", [b"", b"something"])
@pytest.mark.parametrize("from_file", [False, True])
def test_nothing_is_appended_only_where_nothing_is_asked_for(
    data: bytes, from_file: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data"
    file.write_bytes(data)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
    options = parser().parse_args(["append", "-p", "0", *(["--file", str(file)] if from_file else [])])
    name = file if from_file else "standard input"
    if data:
        assert transactions._data(options) == data
    else:
        with pytest.raises(WaltzError, match=f'^nothing was appended: {name} is empty; .* give "" as text'):
            transactions._data(options)
    assert transactions._data(parser().parse_args(["append", "-p", "0", ""])) == b""


def printed(first: int, last: int) -> str:
    return "".join(f"partition 0: transaction {each}\n" for each in range(first, last + 1))


def test_what_is_committed_before_a_line_that_fails_is_told(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [*(b"%d" % number for number in range(1500)), b"y" * 200]
    assert shell(lines) == 1
    told = capsys.readouterr()
    assert told.out == printed(0, 999)
    assert told.err.startswith("Error: lines 1001-1501: ")
    assert told.err.endswith("; not appended, 1000 lines before appended\n")
    assert shell(lines, "--json") == 1
    assert json.loads(capsys.readouterr().out) == {"partition": 0, "transactions": list(range(1000, 2000))}
    assert shell.log() == lines[:1000] * 2


def test_lines_of_which_some_get_lost_are_told_apart() -> None:
    conflict = LockConflict(0, 7)
    error = AppendManyError([5, conflict, NotAppendedError("late"), OutcomeUnknownError("later"), 8, conflict])
    assert transactions._failed(error, range(1001, 1007)) == (
        f"{conflict}; lines 1002-1003,1006 not appended, line 1004 perhaps appended, 1000 lines before appended"
    )
    assert transactions._failed(AppendManyError([OutcomeUnknownError("later")]), [1]) == (
        "later; line 1 perhaps appended, 0 lines before appended"
    )


def test_lines_that_are_committed_below_their_level_are_told_apart() -> None:
    late = NotGuaranteedError(0, 7, "0.5 s have passed")
    told = transactions._failed(AppendManyError([6, late]), range(3, 5))
    assert told == f"{late}; line 4 committed and perhaps not on all storages, 2 lines before appended"


def test_levels(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell.run("x", "--consistency", "leader_all") == 0
    assert shell([b"y", b"z"], "--consistency", "write_all_read_one") == 0
    assert shell.run("x", "--consistency", "quorum") == 1
    assert "demands the consistency leader_quorum" in capsys.readouterr().err
    assert shell([b"x"], "--consistency", "quorum") == 1
    assert "line 1 not appended, 0 lines before appended" in capsys.readouterr().err
    shell.partitions[0].hold_storage()
    assert shell.run("late", "--consistency", "leader_all", "-t", "1") == 1
    assert "transaction 3 of partition 0 is committed" in capsys.readouterr().err
    assert shell.log() == [b"x", b"y", b"z", b"late"]
    for word, told in (("leader", "leader is not possible here"), ("most", "'most' is no level of consistency")):
        with pytest.raises(SystemExit):
            shell.run("x", "--consistency", word)
        assert told in capsys.readouterr().err
    assert len(shell.log()) == 4


def test_who_is_fenced_is_told_the_commands(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.partitions[0].fence(holder=7)
    told = (
        "partition 0: another client holds an exclusive write session; nothing was appended. To take the partition "
        "over: waltz session fence -p 0 --if-session N, with the present number N of waltz session show -p 0"
    )
    assert shell.run("one") == 1
    assert capsys.readouterr().err == f"Error: {told}\n"
    assert shell([b"a", b"b"]) == 1
    assert capsys.readouterr().err == f"Error: {told}; lines 1-2 not appended, 0 lines before appended\n"
    shell.partitions[0].fence()
    assert shell.run("one") == 0


@pytest.mark.parametrize("kind", ["write", "read"])
def test_lines_with_a_lock_follow_each_other(shell: Shell, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell([b"a", b"b", b"c"], f"--{kind}-lock", "x:1", "--append-lock", "x:1") == 0
    assert capsys.readouterr().out == printed(0, 2)
    assert shell([b"d", b"e"], f"--{kind}-lock", "x:1", "--high-water-mark", "1") == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "a lock was changed by transaction 2" in told.err
    assert told.err.endswith("; line 1 not appended, 0 lines before appended\n")
    assert shell([b"d", b"e"], f"--{kind}-lock", "x:1", "--high-water-mark", "2") == 0
    assert shell.log() == [b"a", b"b", b"c", b"d", b"e"]


@pytest.mark.parametrize("options", [(), ("--lines",)])
def test_the_wait_for_data_is_interrupted(
    shell: Shell, options: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with piped() as feeder, interrupting():
        feeder.write(b"one\ntwo\n")
        assert shell.run(*options) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert shell.log() == []


def test_no_lines_are_no_transactions(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell([], "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"partition": 0, "transactions": []}


def test_tail_since_a_time_and_the_end_at_a_time(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def check(*_: object) -> None:
        pass

    monkeypatch.setattr(partition, "check_partition_ids", check)
    served = shell.partitions[0]
    for hour, text in enumerate((b"one", b"two", b"three")):
        served.clock_ms = partial(int, 1_772_323_200_000 + hour * 3_600_000)
        served.add(text)
    common = ["-c", shell.config]
    assert main(["tail", *common, "-p", "0", "--since", "2026-03-01T01:30+01:00"]) == 0
    assert capsys.readouterr().out.split("\n")[:-1] == [
        "0/1 header=0 size=3 two",
        "0/2 header=0 size=5 three",
    ]
    assert main(["partition", "at", *common, "-p", "0", "2026-03-01T01:59:59Z"]) == 0
    assert main(["partition", "at", *common, "-p", "0", "2026-02-28T00:00:00Z", "--json"]) == 0
    assert capsys.readouterr().out == 'partition 0: transaction 1\n{"partition": 0, "transaction": -1}\n'
    with pytest.raises(SystemExit, match="2"):
        main(["partition", "at", *common, "-p", "0", "noon"])
    assert "expected a time with its zone, such as" in capsys.readouterr().err
