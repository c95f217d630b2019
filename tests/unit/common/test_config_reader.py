import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from pydantic import BaseModel, Field

from waltz.common.config_reader import ForeignKeys, keys, make_model, read_yaml
from waltz.common.errors import ConfigError


class Inner(BaseModel):
    size: int = Field(default=1, validation_alias="size")
    password: str = Field(default="", validation_alias="password")


class Outer(BaseModel):
    name: str = Field(validation_alias="node.name")
    inner: Inner = Field(default_factory=Inner, validation_alias="node.inner")


class Other(BaseModel):
    speed: int = Field(default=0, validation_alias="other.speed")


FOREIGN = ForeignKeys(models=(Outer, Other), without_effect=("ignored",), unsupported={"absent": "use the other one"})


def make(mapping: Mapping[str, object], prefix: str = "", defaults: Mapping[str, object] | None = None) -> Outer:
    return make_model(mapping, Outer, source="here", prefix=prefix, defaults=defaults or {}, foreign=FOREIGN)


def test_keys_are_those_of_inner_models_too() -> None:
    assert keys(Outer) == {"node.name", "node.inner.size", "node.inner.password"}


@pytest.mark.parametrize(
    "mapping",
    [
        {"node.name": "a", "node.inner.size": "7"},
        {"node": {"name": "a", "inner": {"size": 7}}},
        {"node.inner": {"size": 7}, "node": {"name": "a"}},
    ],
)
def test_keys_are_dotted_or_nested(mapping: Mapping[str, object]) -> None:
    assert make(mapping) == Outer.model_validate({"node.name": "a", "node.inner": {"size": 7}})


def test_a_default_stands_in_for_the_models_own() -> None:
    assert make({"node.name": "a"}, defaults={"node.inner.size": 3}).inner.size == 3
    assert make({"node.name": "a", "node.inner.size": 4}, defaults={"node.inner.size": 3}).inner.size == 4


def test_keys_without_the_prefix_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    assert make({"all": {"node.name": "a"}, "node.name": "b"}, prefix="all.").name == "a"
    assert not caplog.records


@pytest.mark.parametrize(
    ("mapping", "complaint"),
    [
        ({}, "missing key 'node.name' in here"),
        ({"node.nam": "a"}, "missing key 'node.name' in here; did you mean 'node.nam'?"),
        ({"node.name": 1}, "wrong value for key 'node.name' in here: 1; expected text; put it in quotes"),
        ({"node.name": "a", "node": {"name": "a"}}, "key 'node.name' is given twice in here"),
        (
            {"node.name": "a", "node.inner.password": 12345},
            "wrong value for key 'node.inner.password' in here: expected text; put it in quotes",
        ),
        ({"node.name": "a"} | {f"k{number}": 1 for number in range(1000)}, "its keys are more than 1000"),
    ],
)
def test_what_is_wrong_is_one_line(mapping: Mapping[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        make(mapping)
    assert complaint in str(caught.value)
    assert "12345" not in str(caught.value)


def test_endless_nesting_ends() -> None:
    endless: dict[str, object] = {}
    endless["deeper"] = endless
    with pytest.raises(ConfigError, match="its keys are nested more than 20 deep"):
        make(endless)


def test_unknown_keys_are_warnings(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    make({"node.name": "a", "node.inner.sise": 1, "other.speed": 1, "ignored.key": 1, "absent.key": 1, "else": 1})
    assert sorted(record.getMessage() for record in caplog.records) == [
        "here: key 'absent.key' has no effect; use the other one",
        "here: unknown key 'else' is ignored",
        "here: unknown key 'node.inner.sise' is ignored; did you mean 'node.inner.size'?",
    ]


@pytest.mark.parametrize(
    ("text", "found"), [("", {}), ("# nothing", {}), ("a.b: 1\nc: {d: x}", {"a.b": 1, "c": {"d": "x"}})]
)
def test_files(tmp_path: Path, text: str, found: Mapping[str, object]) -> None:
    path = tmp_path / "file.yml"
    path.write_text(text)
    assert read_yaml(path) == found


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"a: 1\na: 2", "line 2: not valid YAML: key 'a' is given twice"),
        (b"a: [", "not valid YAML"),
        (b"- a", "expected lines of the form 'key: value', found"),
        (b"\xff", "is not a text file in UTF-8"),
        (b"#" * ((1 << 20) + 1), "has more than 1048576 bytes"),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "file.yml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=complaint):
        read_yaml(path)
