"""Every command has help, stands in the documentation, and prints JSON if it prints."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from waltz.cli.main import parser

PAGE = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()

WITHOUT_JSON = {
    "zookeeper create": "prints nothing",
    "zookeeper delete": "prints nothing",
    "zookeeper add-storage-node": "prints nothing",
    "zookeeper remove-storage-node": "prints nothing",
    "zookeeper assign-partition": "prints nothing",
    "zookeeper unassign-partition": "prints nothing",
    "zookeeper auto-assign": "prints nothing",
    "storage add-partition": "prints nothing",
    "storage remove-partition": "prints nothing",
    "storage availability": "prints nothing",
    "storage sync-partitions": "prints nothing",
    "acl init": "prints the rules",
    "acl grant": "prints what differs",
    "acl revoke": "prints what differs",
    "acl mode": "prints what differs",
    "acl name": "prints nothing but problems",
    "acl set-quota": "prints what differs",
    "acl remove-quota": "prints what differs",
    "acl diff": "prints what differs",
    "acl apply": "prints what differs",
    "acl export": "prints the rules, which are JSON",
    "archive set-url": "prints nothing but that the archive is empty",
    "archive remove-url": "prints nothing",
    "mirror resume": "prints what is to be started",
    "bot random": "tells by HTTP, and in its history",
    "bot coalmine": "tells by HTTP, and in its history",
    "bot bank": "tells by HTTP",
    "table export": "writes rows, in lines of JSON or CSV",
    "table import": "prints how many rows, to standard error",
    "local run": "runs until Ctrl-C",
    "local java": "prints nothing",
    "demo": "a story for people",
    "completion": "a script for a shell",
}

MAY_DESTROY = ("zookeeper delete", "storage remove-partition", "storage recover-partition", "table truncate")


def subparsers(found: argparse.ArgumentParser) -> "list[argparse._SubParsersAction[argparse.ArgumentParser]]":
    return [action for action in found._actions if isinstance(action, argparse._SubParsersAction)]


def commands(
    found: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, str | None, argparse.ArgumentParser]]:
    """The names of all commands, what the list above each says of it, and their parsers."""
    for action in subparsers(found):
        said = {choice.dest: choice.help for choice in action._choices_actions}
        for verb, inner in action.choices.items():
            whole = f"{name} {verb}".strip()
            if subparsers(inner):
                yield from commands(inner, whole)
            else:
                yield whole, said[verb], inner


COMMANDS = {name: (said, found) for name, said, found in commands(parser())}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_explains_itself(name: str) -> None:
    said, found = COMMANDS[name]
    assert said
    assert found.description
    assert found.format_help().startswith(f"usage: waltz {name} ")


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_documented(name: str) -> None:
    assert re.search(rf"`waltz {name}[`\s]|^waltz {name} ", PAGE, re.MULTILINE), (
        f"waltz {name} is on no line of the page"
    )


def test_each_documented_command_is_there() -> None:
    nouns = {name.split()[0] for name in COMMANDS}
    for noun, verb in re.findall(r"`waltz ([a-z]+) ?([a-z-]+)?", PAGE):
        assert noun in nouns
        assert noun in COMMANDS or not verb or f"{noun} {verb}" in COMMANDS, f"waltz {noun} {verb}"


def test_what_prints_prints_json() -> None:
    without = {name for name, (_, found) in COMMANDS.items() if "--json" not in found._option_string_actions}
    assert without == set(WITHOUT_JSON)


def test_what_destroys_can_be_told_not_to_ask() -> None:
    for name in MAY_DESTROY:
        assert {"-y", "--yes"} <= COMMANDS[name][1]._option_string_actions.keys()


def test_all_that_work_on_a_cluster_take_its_file_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    takers = [name for name, (_, found) in COMMANDS.items() if "-c" in found._option_string_actions]
    assert len(takers) > 30
    monkeypatch.setenv("WALTZ_CONFIG", "/from/the/environment.yml")
    for name, _, found in commands(parser()):
        if name in takers:
            assert found.get_default("cli_config_path") == "/from/the/environment.yml"
            assert {"--set", "--strict"} <= found._option_string_actions.keys()
    options = parser().parse_args(["status"])
    assert options.cli_config_path == Path("/from/the/environment.yml")
    monkeypatch.setenv("WALTZ_CONFIG", "")
    options = parser().parse_args(["status"])
    with pytest.raises(SystemExit) as caught:
        options.run(options)
    assert caught.value.code == 2
    assert "no cluster is named: give -c/--cli-config-path FILE" in capsys.readouterr().err
