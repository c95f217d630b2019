"""Child processes: they begin only when whoever would end them knows of them."""

import sys
from pathlib import Path

import pytest

from waltz.common.errors import WaltzError
from waltz.local.processes import Children

TIMEOUT_S = 30.0


def test_a_child_gets_its_arguments_as_they_are_and_an_empty_input(tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = "import sys; print(sys.argv[1:], sys.stdin.read() == '')"
    with Children() as children:
        child = children.start("child", [sys.executable, "-c", program, "a b", "$HOME", "'"], log)
        assert child.wait(TIMEOUT_S) == 0
    assert log.read_text() == "['a b', '$HOME', \"'\"] True\n"


def test_the_configuration_of_a_child_is_that_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALTZ_ZOOKEEPER_CONNECT_STRING", "of-another-cluster:2181")
    monkeypatch.setenv("WALTZ_ZOOKEEPER_JARS", "/jars")
    program = "import os; print(sorted(name for name in os.environ if name.startswith('WALTZ_ZOO')))"
    with Children() as children:
        child = children.start("child", [sys.executable, "-c", program], tmp_path / "log")
        assert child.wait(TIMEOUT_S) == 0
    assert (tmp_path / "log").read_text() == "['WALTZ_ZOOKEEPER_JARS']\n"


def test_a_piped_child_reads_what_it_is_sent(tmp_path: Path) -> None:
    with Children() as children:
        child = children.start("child", ["cat"], tmp_path / "log", piped=True)
        to_child, from_child = child.pipes
        to_child.write(b"first\nsecond\n")
        to_child.close()
        assert from_child.read() == b"first\nsecond\n"
        assert child.wait(TIMEOUT_S) == 0


def test_a_child_does_not_begin_when_its_owner_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = tmp_path / "begun"

    def interrupted(children: Children, word: str, process_id: int) -> None:
        raise KeyboardInterrupt

    with Children() as children:
        with monkeypatch.context() as patch:
            patch.setattr(Children, "_tell", interrupted)
            with pytest.raises(KeyboardInterrupt):
                children.start("child", ["touch", str(begun)], tmp_path / "log")
        (child,) = children._children
        stdin = child._process.stdin
        assert stdin is not None
        stdin.close()
        assert child.wait(TIMEOUT_S) != 0
    assert not begun.exists()


def test_a_program_that_does_not_exist_is_told_in_the_log(tmp_path: Path) -> None:
    with Children() as children:
        child = children.start("child", [str(tmp_path / "nothing")], tmp_path / "log")
        assert child.wait(TIMEOUT_S) == 127
        with pytest.raises(WaltzError, match=r"exit code 127; its log .*\n.*nothing: (not found|No such file)"):
            child.check()
