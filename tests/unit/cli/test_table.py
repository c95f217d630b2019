"""Tables from the shell, over a cluster in memory."""

import asyncio
import contextlib
import io
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import TextIO

import pytest

import waltz
from tests.memory_zookeeper import MemoryZooKeeper, MemoryZooKeeperServer
from tests.unit.cli.inputs import interrupting, piped
from waltz.asynchronous import connect
from waltz.cli import table as table_commands
from waltz.cli.main import main
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table.face.follower import Follower
from waltz.table.face.table import Table
from waltz.table.taking import Taken


class Shell:
    """Runs commands on a cluster whose partitions 0 and 1 are tables, and 2 is raw."""

    def __init__(self, config: Path) -> None:
        self.partitions = MockServerPartition.create(3)
        self._config = config

    def __call__(self, verb: str, *arguments: str, partition: str | None = "0") -> int:
        chosen = () if partition is None else ("-p", partition)
        return main(["table", verb, "-c", str(self._config), *chosen, *arguments])

    def connect(self, *_: object, **__: object) -> waltz.Client:
        """In place of a connection to a cluster."""
        return connect(MockDriver(self.partitions))

    def configure(self, changes: dict[str, object], partition_id: int = 0) -> None:
        async def configured() -> None:
            async with self.connect() as client:
                await waltz.table.configure(client, partition_id, changes)

        asyncio.run(configured())


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    async def zookeeper(*_: object, **__: object) -> MemoryZooKeeper:
        return await MemoryZooKeeperServer().connect()

    config = tmp_path / "cli.yml"
    config.write_text("zookeeper.connectString: nowhere\ncluster.root: /waltz\n")
    made = Shell(config)
    monkeypatch.setattr("waltz.common.zk.kazoo_client.connect_configured", zookeeper)
    monkeypatch.setattr("waltz.asynchronous.connect", made.connect)
    for partition_id in (0, 1):
        made.configure({"format": "table"}, partition_id)
    return made


def output(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


def test_rows_are_written_and_read(shell: Shell, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert shell("put", "ann", "Ann", "--prefix", "users") == 0
    assert shell("put", "hex:00ff", "--null") == 0
    (tmp_path / "value").write_bytes(b"\xfe")
    assert shell("put", "bob", "--value-file", str(tmp_path / "value"), "--timestamp", "5") == 0
    assert output(capsys) == ["0", "1", "2"]
    assert shell("get", "bob", "hex:00ff") == 0
    assert output(capsys) == ["\tbob\tbase64:/g==", "\tbase64:AP8=\t(null)"]
    assert shell("get", "--json", "--prefix", "users", "ann", "bob") == 1
    printed = capsys.readouterr()
    row = json.loads(printed.out)
    assert (row["prefix"], row["key"], row["value"], row["transaction_id"]) == ("users", "ann", "Ann", 0)
    assert printed.err == "Error: no row with the key bob\n"
    assert shell("delete", "bob", "never there") == 0
    assert output(capsys) == ["3"]
    assert shell("get", "bob", "--raw") == 0
    assert output(capsys) == ["\tbob\t(deleted)"]
    assert shell("scan", "--encoding", "hex") == 0
    assert output(capsys) == ["\thex:00ff\t(null)", "hex:7573657273\thex:616e6e\thex:416e6e"]


def test_rows_are_shown_where_the_output_is_not_utf_8(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    assert shell("put", "grün", "日本") == 0
    monkeypatch.setattr(sys, "stdout", shown)
    assert shell("get", "grün") == 0
    assert isinstance(shown.buffer, io.BytesIO)
    assert shown.buffer.getvalue() == b"\tgr\\u00fcn\t\\u65e5\\u672c\n"


def test_scans(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    for key in "abcd":
        assert shell("put", key, key) == 0
        assert shell("put", key, key, "--prefix", "p") == 0
    capsys.readouterr()
    for arguments, keys in (
        ([], ["\ta", "\tb", "\tc", "\td", "p\ta", "p\tb", "p\tc", "p\td"]),
        (["--prefix", "p", "--reverse", "--limit", "2"], ["p\td", "p\tc"]),
        (["--prefix", ""], ["\ta", "\tb", "\tc", "\td"]),
        (["--start", "b", "--end", "d"], ["\tb", "\tc"]),
        (["--prefix", "p", "--start", "c"], ["p\tc", "p\td"]),
        (["--prefix", "x"], []),
    ):
        assert shell("scan", *arguments) == 0
        assert [line.rpartition("\t")[0] for line in output(capsys)] == keys
    assert shell("scan", "--count") == 0
    assert output(capsys) == ["8"]


def test_levels_of_writes(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell("put", "k", "1", "--consistency", "leader_all") == 0
    assert shell("delete", "k", "--consistency", "leader_all") == 0
    assert output(capsys) == ["0", "1"]
    for arguments in (("put", "k", "2"), ("delete", "k")):
        assert shell(*arguments, "--consistency", "quorum") == 1
        assert "demands the consistency leader_quorum" in capsys.readouterr().err
    assert shell("put", "k", "2", "--if-absent", "--consistency", "leader_all") == 1
    assert "a condition takes no --consistency" in capsys.readouterr().err
    assert shell.partitions[0].high_water_mark == 1


def test_levels_of_reads(shell: Shell, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    view = ("--store", "sqlite", "--directory", str(tmp_path / "view"))
    assert shell("put", "k", "old") == 0
    assert shell("get", "k", *view) == 0
    assert shell("put", "k", "new") == 0
    capsys.readouterr()
    for level, value in (
        ("fresh", "new"),
        ("leader_quorum", "new"),
        ("none", "new"),
        ("any", "new"),
        ("at-least:1", "new"),
        ("as-of:1", "new"),
        ("as-of:0", "old"),
    ):
        assert shell("get", "k", "--consistency", level) == 0
        assert shell("scan", "--consistency", level) == 0
        assert output(capsys) == [f"\tk\t{value}"] * 2
    assert shell("scan", "--count", "--consistency", "as-of:-1") == 0
    assert output(capsys) == ["0"]
    assert shell("get", "k", "--consistency", "leader_plus_one") == 1
    assert "consistency=leader_quorum does not go with reads at leader_plus_one" in capsys.readouterr().err
    shell.configure({"requireConsistency": False})
    assert shell("get", "k", "--consistency", "leader_plus_one") == 0
    capsys.readouterr()
    for level in ("most", "as-of:x", "at-least:", "as-of:-2"):
        with pytest.raises(SystemExit):
            shell("get", "k", "--consistency", level)
        assert "--consistency" in capsys.readouterr().err


@pytest.mark.parametrize("level", ["any", "none"])
def test_any_takes_a_view_in_a_directory_as_it_is(
    shell: Shell,
    level: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = ("--store", "sqlite", "--directory", str(tmp_path / "view"))
    assert shell("put", "k", "old") == 0
    assert shell("get", "k", *view) == 0
    assert shell("put", "k", "new") == 0
    capsys.readouterr()

    async def never(_: Table) -> None:
        raise AssertionError("nothing is waited for")

    async def no_writes(*_: object) -> None:
        pass

    monkeypatch.setattr(table_commands, "catch_up", never)
    monkeypatch.setattr(Follower, "_write", no_writes)
    assert shell("get", "k", *view, "--consistency", level) == 0
    assert output(capsys) == ["\tk\told"]


def test_conditions(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell("put", "k", "1", "--if-absent") == 0
    assert shell("put", "k", "2", "--if-absent") == 1
    assert "nothing was written: the row has the version" in capsys.readouterr().err
    assert shell("put", "k", "2", "--if-version", "0:0") == 0
    assert shell("put", "k", "3", "--if-version", "0:0") == 1
    capsys.readouterr()
    assert shell("take") == 0
    assert output(capsys) == ["\tk\t1", "\tk\t2"]


def test_takes_say_where_to_go_on(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(5):
        shell("put", "k", str(number), "--prefix", "even" if number % 2 == 0 else "odd")
    capsys.readouterr()
    assert shell("take", "--after", "1", "--limit", "2") == 0
    printed = capsys.readouterr()
    assert printed.out == "even\tk\t2\nodd\tk\t3\n"
    assert printed.err == "cursor 3, with more behind it\n"
    assert shell("take", "--prefix", "even", "--json") == 0
    printed = capsys.readouterr()
    assert [json.loads(line)["value"] for line in printed.out.splitlines()] == ["0", "2", "4"]
    assert printed.err == "cursor 4, at the end of the log\n"


def test_an_interrupted_take_says_where_to_go_on(
    shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row comes while the log is followed, and Ctrl-C when it is printed and the next one is waited for."""
    follow = Table.follow

    async def following(
        self: Table, after: int, *, prefix: bytes | None = None, until: int | None = None
    ) -> AsyncGenerator[Taken, None]:
        if until is None:
            await self.put(b"k", b"late")
        async for taken in follow(self, after, prefix=prefix, until=until):
            yield taken
            if until is None:
                os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(Table, "follow", following)
    assert shell("put", "k", "early") == 0
    capsys.readouterr()
    assert shell("take", "--follow") == 130
    assert capsys.readouterr() == (
        "\tk\tearly\n\tk\tlate\n",
        "cursor 0, at the end of the log\ncursor 1, at the end of the log\ninterrupted\n",
    )


@contextlib.contextmanager
def terminal(typed: bytes) -> Iterator[TextIO]:
    """Standard input with an operator who has typed this."""
    operator, inside = pty.openpty()
    os.write(operator, typed)
    try:
        with open(inside) as stdin:
            yield stdin
    finally:
        os.close(operator)


def test_a_truncate_asks(shell: Shell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    shell("put", "k", "v")
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert shell("truncate") == 1
    assert (
        capsys.readouterr().err == "Error: nothing was done: there is no terminal for a question; give --yes to agree\n"
    )
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with terminal(b"\n") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert shell("truncate") == 1
    assert capsys.readouterr().err == "void all rows of partition 0? [y/N] Error: nothing was done\n"
    assert shell("get", "k") == 0
    with terminal(b"yes\n") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert shell("truncate") == 0
    assert shell("put", "k2", "v") == 0
    assert shell("truncate", "--yes") == 0
    capsys.readouterr()
    assert shell("scan", "--raw", "--count") == 0
    assert output(capsys) == ["0"]


def test_what_writes_tells_programs_too(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    assert shell("put", "k", "v", "--json") == 0
    assert shell("put", "k", "w", "--if-version", "0:0", "--json") == 0
    assert shell("delete", "k", "--json") == 0
    assert shell("truncate", "--yes", "--json") == 0
    decoder, text, found = json.JSONDecoder(), capsys.readouterr().out, []
    while text:
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    assert found == [{"transaction": number} for number in range(4)]
    assert shell("sweep", "--json") == 0
    assert json.loads(capsys.readouterr().out) == [{"partition": 0, "due": False}]


def test_sweeps(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell("put", "old", "v", "--timestamp", "5")
    shell("put", "young", "v")
    capsys.readouterr()
    assert shell("sweep", partition=None) == 0
    assert output(capsys) == [f"partition {number}: its properties have no ages" for number in (0, 1)]
    hour_ms = 3_600_000
    shell.configure({"ttlTimestampAgeInMillis": hour_ms, "ttlTimestampIntervalMillis": 10**15})
    assert shell("sweep") == 0
    assert shell("sweep", "--dry-run") == 0
    shell.configure({"ttlTimestampIntervalMillis": None})
    assert shell("sweep", "--dry-run") == 0
    assert shell("sweep") == 0
    assert shell("sweep") == 0
    assert shell("sweep", "--now") == 0
    assert output(capsys) == [
        "partition 0: nothing is due",
        "partition 0: 1 row old enough to be removed; a sweep is not due",
        "partition 0: 1 row old enough to be removed; a sweep is due",
        "partition 0: transaction 2 has removed 1 of 2 rows",
        "partition 0: nothing is due",
        "partition 0: transaction 3 has removed 0 of 1 row",
    ]


def test_files(
    shell: Shell, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("put", "k", "v", "--prefix", "p")
    shell("delete", "gone")
    file = tmp_path / "rows.csv"
    assert shell("export", str(file)) == 0
    assert file.read_text().startswith("prefix,key,value,timestamp,tombstone,null\n,gone,,")
    assert shell("import", str(file), partition="1") == 0
    assert capsys.readouterr().err == "exported 2 rows\nimported 2 rows\n"
    assert shell("scan", "--raw", partition="1") == 0
    assert output(capsys) == ["\tgone\t(deleted)", "p\tk\tv"]
    assert shell("import", str(tmp_path / "missing"), partition="1") == 1
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'{"key":"piped"}\n')))
    assert shell("import", "-", partition="1") == 0
    capsys.readouterr()
    assert shell("get", "piped", partition="1") == 0
    assert output(capsys) == ["\tpiped\t(null)"]


def test_the_wait_for_rows_is_interrupted(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with piped() as feeder, interrupting():
        feeder.write(b'{"key":"piped"}\n')
        assert shell("import", "-") == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_views_are_kept_in_a_directory(shell: Shell, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shell("put", "k", "v")
    for _ in range(2):
        assert shell("get", "k", "--directory", str(tmp_path / "view")) == 0
    assert "sqlite" in (tmp_path / "view" / "identity").read_text()
    shell.configure({"indexClassName": "berkeleydb", "maxKeySizeInBytes": 499})
    assert shell("get", "k") == 0
    assert shell("get", "k", "--directory", str(tmp_path / "other")) == 0
    assert "lmdb" in (tmp_path / "other" / "identity").read_text()
    assert output(capsys) == ["0", *["\tk\tv"] * 4]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["put", "k", "v", "--prefix", "p" * 40_000], "a prefix of 40000 bytes; at most 32767 are possible"),
        (["put", "k" * 600, "v"], "prefix and key take more than the 499 bytes that this table allows"),
        (["put", "k", "v", "--timestamp", "9" * 15], "the timestamp 999999999999999 is too far ahead"),
        (["get", "k", "--store", "nothing"], "no store is called 'nothing'; there are memory, sqlite"),
        (["get", "k", "--store", "lmdb"], "the store lmdb needs a directory"),
    ],
)
def test_bad_input_is_one_clear_error(
    arguments: list[str], text: str, shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    if "kk" in arguments[1]:
        shell.configure({"maxKeySizeInBytes": 499})
    assert shell(*arguments) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith(f"Error: {text}")
    assert printed.err.count("\n") == 1


def test_partitions_that_are_no_tables(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    for verb, *arguments in (["put", "k", "v"], ["get", "k"], ["truncate", "--yes"], ["sweep"], ["take"]):
        assert shell(verb, *arguments, partition="2") == 1
        error = capsys.readouterr().err
        assert error.startswith("Error: partition 2 is not a table: its format is raw.")
        assert error.endswith("waltz partition configure -p 2 format=table\n")
    assert shell("get", "k", partition="9") == 1
    assert capsys.readouterr().err == "Error: there is no partition 9; the cluster has 3 (0 to 2)\n"
    shell.configure({"disabled": True})
    assert shell("put", "k", "v") == 1
    assert capsys.readouterr().err.startswith("Error: partition 0 is disabled")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["put", "k"], "one of the arguments VALUE --null --value-file is required"),
        (["put", "hex:z", "v"], "argument KEY: 'hex:z' cannot be decoded"),
        (["put", "k", "v", "--if-version", "5"], "argument --if-version: not of the form ID:ROW: '5'"),
        (["put", "k", "v", "--timestamp", "0"], "argument --timestamp: must be at least 1, not 0"),
        (["take", "--limit", "0"], "argument --limit: must be at least 1, not 0"),
        (["get", "k", "--encoding", "latin"], "argument --encoding: invalid choice"),
    ],
)
def test_wrong_usage(arguments: list[str], text: str, shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        shell(*arguments)
    assert raised.value.code == 2
    assert text in capsys.readouterr().err
