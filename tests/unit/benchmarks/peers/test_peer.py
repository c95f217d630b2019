import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from benchmarks.peers import peer
from benchmarks.peers.__main__ import PEERS
from benchmarks.peers.peer import Module, Peer, Program, Running, matching, missing, program

PRESENT = Program("sh", "it is there")
ABSENT = Program("waltz-has-no-such-program", "build it")


async def append(payload: bytes) -> None:
    raise AssertionError("no peer is loaded here")


@asynccontextmanager
async def start(directory: Path, max_in_flight: int) -> AsyncIterator[Running]:
    yield Running(append, (), "nothing")


def peer_of(*needs: Program | Module) -> Peer:
    return Peer("some", needs, start)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_nothing_is_missing() -> None:
    assert missing(peer_of(PRESENT, Module("json", "it is there"))) == []
    assert missing(peer_of()) == []


def test_what_is_missing_is_named_with_how_to_get_it() -> None:
    assert missing(peer_of(ABSENT, PRESENT, Module("waltz_has_no_such_module", "pip install it"))) == [
        "program waltz-has-no-such-program: build it",
        "Python module waltz_has_no_such_module: pip install it",
    ]


def test_looking_for_a_module_does_not_import_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "waltz_test_client.py").write_text("raise AssertionError('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert Module("waltz_test_client", "").find() == str(tmp_path / "waltz_test_client.py")
    assert "waltz_test_client" not in sys.modules


def test_the_path_comes_before_other_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = executable(tmp_path / "first/it"), executable(tmp_path / "second/it")
    sought = Program("it", "", (str(second.parent),))
    monkeypatch.setenv("PATH", str(first.parent))
    assert sought.find() == str(first)
    monkeypatch.setenv("PATH", "")
    assert sought.find() == str(second)


def test_servers_off_the_path_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = executable(tmp_path / "sbin/server")
    monkeypatch.setattr(peer, "SYSTEM_DIRECTORIES", (str(server.parent),))
    assert Program("server", "").find() == str(server)


def test_of_several_versions_the_newest_is_found(tmp_path: Path) -> None:
    for version in ("9", "15", "13"):
        executable(tmp_path / version / "bin/it")
    pattern = f"{tmp_path}/*/bin"
    assert [found.parent.name for found in matching(pattern)] == ["9", "13", "15"]
    assert Program("it", "", (pattern,)).find() == str(tmp_path / "15/bin/it")


def test_a_program_is_chosen_among_the_needs() -> None:
    needs = (Module("json", ""), PRESENT, ABSENT)
    assert program("sh", needs) == PRESENT.find()
    with pytest.raises(AssertionError, match="waltz-has-no-such-program is missing"):
        program(ABSENT.name, needs)


def test_every_peer_says_how_it_is_obtained() -> None:
    assert len({peer.name for peer in PEERS}) == len(PEERS)
    for each in PEERS:
        assert all(need.name and need.how for need in each.needs)
