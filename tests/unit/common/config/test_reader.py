import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

import pytest
from pydantic import BaseModel, Field, model_validator

from waltz.common.config.reader import (
    ForeignKeys,
    Given,
    NoEffect,
    Reading,
    Unknown,
    examine,
    flat,
    ignored,
    keys,
    settle,
    strictly,
)
from waltz.common.errors import ConfigError


class Inner(BaseModel):
    kind: Annotated[str, NoEffect("all are alike")] = Field(default="", validation_alias="kind")
    size: int = Field(default=1, validation_alias="size")
    password: str = Field(default="", validation_alias="password")


class Outer(BaseModel):
    name: str = Field(validation_alias="node.name")
    inner: Inner = Field(default_factory=Inner, validation_alias="node.inner")


class Other(BaseModel):
    speed: int = Field(default=0, validation_alias="other.speed")


FOREIGN = ForeignKeys(
    models=(Outer, Other),
    without_effect={
        "ignored": NoEffect("nobody needs it"),
        "absent": NoEffect("use the other one", is_harmless=False),
    },
)


def read(
    mapping: Mapping[str, object],
    prefix: str = "",
    defaults: Mapping[str, object] | None = None,
    overrides: Mapping[str, Given] | None = None,
    unknown: Sequence[Unknown] = (),
) -> Reading[Outer]:
    return examine(
        mapping,
        Outer,
        source="here",
        prefix=prefix,
        defaults=defaults or {},
        foreign=FOREIGN,
        overrides=overrides or {},
        unknown=unknown,
    )


def make(mapping: Mapping[str, object], prefix: str = "", defaults: Mapping[str, object] | None = None) -> Outer:
    return settle(read(mapping, prefix, defaults))


def test_keys_are_those_of_inner_models_too() -> None:
    assert keys(Outer) == {"node.name", "node.inner.kind", "node.inner.size", "node.inner.password"}


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
    make({"node.name": "a", "node.inner.sise": 1, "other.speed": 1, "ignored.key": 1, "else": 1})
    assert sorted(record.getMessage() for record in caplog.records) == [
        "here: unknown key 'else' is ignored",
        "here: unknown key 'node.inner.sise' is ignored; did you mean 'node.inner.size'?",
    ]


@pytest.mark.parametrize(
    ("given", "level", "told"),
    [
        ({}, None, ""),
        ({"ignored.a": 1, "ignored.b": 2}, logging.INFO, "ignored.a, ignored.b (nobody needs it)"),
        ({"node.inner.kind": "x"}, logging.INFO, "node.inner.kind (all are alike)"),
        (
            {"ignored": 1, "absent.key": 1, "node.inner.kind": "x"},
            logging.WARNING,
            "node.inner.kind (all are alike); absent.key (use the other one); ignored (nobody needs it)",
        ),
    ],
)
def test_keys_without_effect_are_one_line(
    given: Mapping[str, object], level: int | None, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    make({"node.name": "a", **given})
    assert [(record.levelno, record.getMessage()) for record in caplog.records] == (
        [] if level is None else [(level, f"here: keys without effect: {told}")]
    )


def test_strictly_they_are_errors() -> None:
    reading = read(
        {"node.name": "a", "else": 1, "ignored": 1, "node.inner.kind": "x"},
        unknown=[Unknown("unknown variable X", "; did you mean Y?")],
    )
    assert ignored(reading.unknown) == [
        "unknown variable X is ignored; did you mean Y?",
        "here: unknown key 'else' is ignored",
    ]
    assert strictly(reading) == [
        "unknown variable X; did you mean Y?",
        "here: unknown key 'else'",
        "here: key 'node.inner.kind' has no effect: all are alike",
        "here: key 'ignored' has no effect: nobody needs it",
    ]
    with pytest.raises(ConfigError, match="^unknown variable X; did you mean Y\\?$"):
        settle(reading, strict=True)
    assert settle(read({"node.name": "a", "other.speed": 1}), strict=True).name == "a"


def test_all_errors_are_found() -> None:
    reading = read({"node.inner.size": [1], "node.inner.password": 12345})
    assert reading.made is None
    assert reading.errors == (
        "missing key 'node.name' in here",
        "wrong value for key 'node.inner.size' in here: [1]; expected a valid integer",
        "wrong value for key 'node.inner.password' in here: expected text; put it in quotes",
    )
    with pytest.raises(ConfigError, match="^missing key"):
        settle(reading)


def test_a_list_in_place_of_a_group() -> None:
    reading = read({"node": [{"name": "a"}]})
    assert reading.errors == ("missing key 'node.name' in here: 'node' is a list there; expected keys below it",)
    assert ignored(reading.unknown) == ["here: unknown key 'node' is ignored; did you mean 'node.inner.kind'?"]


def test_the_origin_of_each_value_is_known() -> None:
    reading = read(
        {"node.name": "a", "node.inner": {"size": 1, "kind": "x"}},
        overrides={
            "node.inner.size": Given("2", "variable SIZE"),
            "node.name": Given("a", "variable NAME"),
            "node.inner.password": Given(None, "nowhere"),
        },
    )
    assert reading.made is not None
    assert flat(reading.made) == {
        "node.name": "a",
        "node.inner.kind": "x",
        "node.inner.size": 2,
        "node.inner.password": "",
    }
    assert reading.sources == {
        "node.name": "variable NAME",
        "node.inner.size": "variable SIZE",
        "node.inner.kind": "here",
    }
    assert reading.overridings == ["variable SIZE overrides 'node.inner.size' of here"]


def test_what_a_model_refuses_names_where_it_is_from() -> None:
    class Pair(BaseModel):
        low: int = Field(default=0, validation_alias="pair.low")
        high: int = Field(default=9, validation_alias="pair.high")

        @model_validator(mode="after")
        def _check(self) -> Self:
            if self.low > self.high:
                raise ValueError("pair.low must not be above pair.high")
            return self

    def refused(mapping: Mapping[str, object], overrides: Mapping[str, Given]) -> str:
        reading = examine(mapping, Pair, source="here", prefix="", defaults={}, foreign=FOREIGN, overrides=overrides)
        return reading.errors[0]

    assert refused({"pair.low": 10}, {}) == "pair.low must not be above pair.high in here"
    of_both = refused({"pair.low": 5}, {"pair.high": Given("1", "variable HIGH")})
    assert of_both == "pair.low must not be above pair.high in here and variable HIGH"
    assert refused({}, {"pair.low": Given(10, "--set")}) == "pair.low must not be above pair.high in --set"
