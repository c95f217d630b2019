"""docs/configuration.md has every key as the models have it, its example is true, and the sample files are valid."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel, Field

from tests.configuration_page import MODELS, ORIGINAL, PAGE, Key, keys_of, written
from waltz.cli.main import main
from waltz.common.config.reader import flat, keys
from waltz.common.config.schemas import MODELS as ALL_MODELS
from waltz.common.config.schemas import load
from waltz.common.config.sources import ALL_VARIABLES, variable_of
from waltz.serving import __main__ as server

DEPLOY = Path(__file__).parents[2] / "deploy"
SAMPLES = DEPLOY / "config"
REQUIRED_PORTS = {"server": ["server.port"], "storage": ["storage.port", "storage.admin.port"]}
CONFIGURATIONS = sorted([*DEPLOY.rglob("config/*.yml"), *DEPLOY.glob("compose/*.yml")])
KINDS = {
    "server": "servers",
    "storage": "storages",
    "client": "clients",
    "cli": "tools",
    "archive": "archivers",
    "view": "views",
}
"""The samples, and which models they are for."""


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in {*ALL_VARIABLES, "WALTZ_CONFIG"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("socket.getfqdn", lambda: "host.example")  # it asks a name server, for seconds if need be


def test_the_page_is_that_of_the_models() -> None:
    """Renewed by ``python -m tests.configuration_page``."""
    page = PAGE.read_text()
    assert page == written(page)


def test_every_key_is_on_the_page() -> None:
    assert set(MODELS.values()) == set(ALL_MODELS)
    page = PAGE.read_text()
    for model in ALL_MODELS:
        for key in keys(model):
            shown = re.sub(r"^(?!zookeeper)\w+\.(?=(?:ssl|acl)\.)", "", key)
            assert re.search(rf"\| `{re.escape(shown)}`°?<br>`{variable_of(shown)}` \|", page)


@pytest.mark.parametrize("name", MODELS)
def test_every_key_is_explained(name: str) -> None:
    listed = list(keys_of(MODELS[name]))
    assert {key.key for key in listed} == keys(MODELS[name])
    for key in listed:
        assert key.effect.endswith("."), key
        assert all(key[:4])
    assert ORIGINAL[name] <= keys(MODELS[name])


def test_what_processes_share_is_the_same_in_each() -> None:
    """One table has it for all of them."""
    shared = {key.key: key for key in keys_of(MODELS["tools"])}
    names = [name for name in shared if re.match(r"zookeeper\.(?!sessionTimeout|connectTimeout)|cluster\.|acl\.", name)]
    assert len(names) == 15
    for kind, model in MODELS.items():
        theirs = {re.sub(r"^(?!zookeeper)\w+\.(?=acl\.)", "", key.key): key for key in keys_of(model)}
        for name in names if kind != "mirrors" else []:
            if name.startswith("acl.") and kind == "clients":
                continue
            assert theirs[name][1:] == shared[name][1:], (kind, name)


def test_a_key_without_an_explanation_is_found() -> None:
    class Config(BaseModel):
        explained: int = Field(default=1, ge=0, validation_alias="a.explained")
        """Something."""
        silent: int = Field(default=1, ge=0, validation_alias="a.silent")

    class Computed(BaseModel):
        number: int = Field(default_factory=int, ge=0, validation_alias="a.number")
        """Something."""

    with pytest.raises(LookupError, match=r"'a\.silent' has no explanation below Config\.silent"):
        list(keys_of(Config))
    with pytest.raises(LookupError, match=r"'a\.number' has a computed default"):
        list(keys_of(Computed))


def test_a_line() -> None:
    (key,) = (key for key in keys_of(MODELS["storages"]) if key.key == "storage.connections.unreadTimeout")
    assert key == Key(
        "storage.connections.unreadTimeout",
        "ms, ≥ 1",
        "60000 (1 min)",
        "Within this time a peer with more than 1 MiB of unread data must read all of it, or 64 KiB.",
        None,
    )


def test_the_example(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text()
    (file,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    ((command, shown),) = re.findall(r"```console\n\$ (.*?)\n(.*?)```", page, re.DOTALL)
    (tmp_path / "server.yml").write_text(file)
    variable, *arguments = command.split()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(*variable.split("="))
    monkeypatch.setattr("sys.argv", arguments)
    assert server.main() == 1
    captured = capsys.readouterr()
    pattern = re.escape(shown).replace(re.escape("...\n"), "(?:.*\n)+")
    assert re.fullmatch(pattern, captured.out + captured.err), captured.out + captured.err


@pytest.mark.parametrize("path", CONFIGURATIONS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_what_is_deployed_is_valid(path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ports that are not there are set by variables where containers run."""
    kind = "tools" if path.stem == "cli" else path.stem
    missing = {key for key in REQUIRED_PORTS.get(kind, ()) if key not in path.read_text()}
    settings = [f"{key}={number}" for number, key in enumerate(sorted(missing), 1)]
    if kind == "storage":
        settings.append(f"storage.directory={tmp_path}")
    arguments = [word for setting in settings for word in ("--set", setting)]
    assert main(["config", "check", "--of", kind, "--strict", str(path), *arguments]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("name", KINDS)
def test_what_samples_show_is_right(name: str) -> None:
    """Each line that is only shown has a key, and its default if that is a number."""
    path = SAMPLES / f"{name}.yml"
    values = flat(load(path, MODELS[KINDS[name]]))
    shown = re.findall(r"^# ([a-z]\S*\.\S*): (\S+)", path.read_text(), re.MULTILINE)
    assert len(shown) >= 4
    for key, value in shown:
        if not key.endswith("checkHostname"):
            default = values[key]
            assert not isinstance(default, int) or yaml.safe_load(value) == default, key


def test_samples_have_what_is_required() -> None:
    for name, kind in KINDS.items():
        given = yaml.safe_load((SAMPLES / f"{name}.yml").read_text())
        assert {key.key for key in keys_of(MODELS[kind]) if key.default == "**required**"} <= set(given)
