"""The command line of the bots, and the check of histories; the bots themselves run in integration/test_bots.py."""

import json
import shlex
from pathlib import Path

import pytest

from tests.unit.bot.test_history import EVENTS
from waltz.bot.history import HistoryFile, Invoked, ReadCall, Returned
from waltz.cli.main import main, parser

CLUSTER = ["-c", "cli.yml", "-p", "3"]


def write(path: Path, *more: Invoked | Returned) -> None:
    file = HistoryFile(path, 1 << 20)
    for event in (*EVENTS[:5], *more):
        file.append(event)
    file.close()


def test_a_clean_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path / "h")
    assert main(["bot", "check", str(tmp_path / "h")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "bot random, run a, partition 3 of c, 2020-01-01T00:00:00Z",
        "operations 2, of unknown outcome 1, deviations 0",
    ]
    assert main(["bot", "check", "--json", str(tmp_path / "h")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [run["partition"] for run in found.pop("runs")] == [3]
    assert found == {"operations": 2, "unknown": 1, "deviations": []}


def test_a_history_that_cannot_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = Invoked(type="invoke", op=9, process=0, time_ms=9, call=ReadCall(f="read", keys=["k"]))
    write(tmp_path / "h", read, Returned(type="ok", op=9, time_ms=9, rows={"k": ("w", 7, 17)}))
    assert main(["bot", "check", str(tmp_path / "h")]) == 3
    assert "DEVIATION at k: read 9: the row is 'w' of transaction 17" in capsys.readouterr().out
    assert main(["bot", "check", "--json", str(tmp_path / "h")]) == 3
    assert [deviation["key"] for deviation in json.loads(capsys.readouterr().out)["deviations"]] == ["k"]


def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "h").write_text("nonsense\n")
    assert main(["bot", "check", str(tmp_path / "h")]) == 1
    assert "line 1 is not one of a bot's history" in capsys.readouterr().err
    assert main(["bot", "check", str(tmp_path / "none")]) == 1
    assert main(["bot", "random", "-c", str(tmp_path / "none.yml"), "-p", "3"]) == 1
    assert "none.yml" in capsys.readouterr().err


def test_the_commands_of_the_documentation_are_understood() -> None:
    page = (Path(__file__).parents[3] / "docs" / "bot.md").read_text()
    commands = [shlex.split(line)[1:] for line in page.splitlines() if line.startswith("waltz ")]
    verbs = {command[1] for command in commands if command[0] == "bot"}
    assert verbs == {"random", "coalmine", "bank", "check"}
    for command in commands:
        assert callable(parser().parse_args(command).run)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["random", "-p", "3"], "-c/--cli-config-path"),
        (["random", *CLUSTER, "--clients", "1"], "must be at least 2"),
        (["coalmine", *CLUSTER, "--interval", "-5"], "must be between 0 and 1e9"),
        (["bank", *CLUSTER, "--duration", "soon"], "not a number of seconds"),
        (["bank", *CLUSTER, "--http", "port"], "port"),
        (["bank", *CLUSTER, "--accounts", "1"], "must be at least 2"),
        (["bank", *CLUSTER, "--history", "h"], "--history"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bot", *arguments])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
