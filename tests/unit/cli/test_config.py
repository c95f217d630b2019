"""``waltz config check``, the daemons' ``--check-config``, and what overrides the file of a tool."""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from waltz.cli.main import main
from waltz.cli.session import named_cluster
from waltz.common.config.schemas import MODELS
from waltz.common.config.sources import ALL_VARIABLES
from waltz.serving import __main__ as server
from waltz.storage import __main__ as storage

FILE = "zookeeper.connectString: zk:1\ncluster.root: /w\nzookeeper.sessionTimeout: 1\n"
PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*ALL_VARIABLES, "WALTZ_CONFIG"}:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "waltz.yml"
    file.write_text(FILE)
    return file


def test_a_valid_file(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "check", str(path)]) == 0
    out, err = capsys.readouterr()
    assert ["cluster.root:", "/w", "#", str(path)] in [line.split() for line in out.splitlines()]
    assert ["zookeeper.connectTimeout:", "10000", "#", "default"] in [line.split() for line in out.splitlines()]
    assert err == f"{path} is valid; no warnings\n"


def test_one_that_is_wrong(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path.write_text(f"{FILE}ssl.keyStore.location: /no/such.p12\n")
    assert main(["config", "check", str(path)]) == 1
    assert f"Error: {path}: ssl: cannot read keyStore /no/such.p12: No such file" in capsys.readouterr().err
    assert main(["config", "check", "--of", "server", str(path)]) == 1
    assert f"Error: missing key 'server.port' in {path}" in capsys.readouterr().err


def test_for_programs(path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WALTZ_CONFIG", str(path))
    monkeypatch.setenv("WALTZ_CLIENT_AUTO_MOUNT", "false")
    monkeypatch.setenv("WALTZ_CLIENT_SSL_KEY_STORE_PASSWORD", PASSWORD)
    arguments = ["config", "check", "--of", "client", "--json"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    document = json.loads(out)
    assert (document["configuration"], document["valid"]) == (str(path), True)
    assert (document["errors"], document["warnings"]) == ([], [])
    assert document["values"]["client.autoMount"] == {
        "value": False,
        "source": "environment variable WALTZ_CLIENT_AUTO_MOUNT",
    }
    assert document["values"]["zookeeper.connectTimeout"] == {"value": 30_000, "source": "default"}
    assert PASSWORD not in out
    assert main([*arguments, "--strict", "--set", "client.ssl.keyStore.type=JKS"]) == 1
    assert json.loads(capsys.readouterr().out)["errors"] == [
        "--set client.ssl.keyStore.type: key 'client.ssl.keyStore.type' has no effect: the content of the file decides"
    ]


def test_only_the_environment(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["config", "check"]) == 1
    assert "missing key 'zookeeper.connectString' in environment" in capsys.readouterr().err
    monkeypatch.setenv("WALTZ_ZOOKEEPER_CONNECT_STRING", "zk:1")
    assert main(["config", "check", "--set", "cluster.root=/w"]) == 0
    assert capsys.readouterr().err == "environment is valid; no warnings\n"


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["--set", "cluster.root"], 2, "argument --set: expected KEY=VALUE, such as cluster.root=/waltz"),
        (["--set", "cluster.rot=/w"], 1, "Error: --set: unknown key 'cluster.rot'; did you mean 'cluster.root'?"),
        (["--set", "cluster.root=w"], 1, "in --set cluster.root: 'w'; expected an absolute ZooKeeper path"),
    ],
)
def test_wrong_settings(
    path: Path, arguments: list[str], code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) if code == 2 else contextlib.nullcontext() as caught:
        assert main(["config", "check", str(path), *arguments]) == code
    assert caught is None or caught.value.code == code
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize("program", [server.main, storage.main])
def test_daemons_check_and_end(
    program: Callable[[], int],
    path: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path.write_text(
        f"{FILE}server.port: 1\nserver.host: here\n"
        f"storage.port: 1\nstorage.admin.port: 2\nstorage.directory: {tmp_path}\n"
    )
    monkeypatch.setattr("sys.argv", ["waltz-x", "--check-config", str(path)])
    assert program() == 0
    assert "cluster.root: /w" in capsys.readouterr().out
    monkeypatch.setenv("WALTZ_CLUSTER_ROOT", "w")
    assert program() == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "Error: wrong value for key 'cluster.root' in environment variable WALTZ_CLUSTER_ROOT: 'w'; " in err
    monkeypatch.setattr("sys.argv", ["waltz-x", "--check-config", "--set", "cluster.root=/x", str(path)])
    assert program() == 0
    monkeypatch.setattr("sys.argv", ["waltz-x", "--check-config", str(tmp_path)])
    assert program() == 1
    assert capsys.readouterr().err.endswith(f"Error: cannot read configuration file {tmp_path}: Is a directory\n")


def test_daemons_start_with_what_is_checked(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text(f"{FILE}server.host: here\ncolour: blue\nserver.port: 1\n")
    monkeypatch.setattr("sys.argv", ["waltz-server", "--strict", str(path)])
    assert server.main() == 1
    assert capsys.readouterr().err.endswith(f"Error: {path}: unknown key 'colour'\n")


def test_tools_tell_what_overrides_their_file(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waltz.cli.main import parser

    monkeypatch.setenv("WALTZ_CLUSTER_ROOT", "/elsewhere")
    monkeypatch.setenv("WALTZ_ZOOKEEPER_CONNECT_STRING", "zk:1")
    grammar = parser()
    config = named_cluster(
        grammar.parse_args(["status", "-c", str(path), "--set", "zookeeper.sessionTimeout=7"]), grammar
    )
    assert (config.cluster_root, config.zookeeper_session_timeout_ms) == ("/elsewhere", 7)
    assert [record.getMessage() for record in caplog.records] == [
        f"environment variable WALTZ_CLUSTER_ROOT overrides 'cluster.root' of {path}"
    ]
    assert named_cluster(grammar.parse_args(["status"]), grammar).zookeeper_connect_string == "zk:1"


def test_every_model_can_be_checked() -> None:
    from waltz.cli.config import MODELS as CHECKED

    assert set(CHECKED.values()) == set(MODELS)
