"""Reads configuration: turns a mapping into a checked model, errors and warnings.

A key may be written dotted, nested, or as any mix of both; numbers may be written as strings. An error is one line with
the key, the file and a near miss if there is one. An unknown key is a warning with the nearest known name, since a
misspelt option would otherwise silently keep its default.
"""

import difflib
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from waltz.common.brief import SHOWN_LENGTH, shown, shown_key
from waltz.common.errors import ConfigError

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)

_NEAR = 0.8
"""Similarity above which an unknown key is taken for a misspelt known one."""

_MAX_KEYS = 1000
_MAX_DEPTH = 20
"""Limit of nesting: with YAML aliases a few lines can stand for a huge number of keys, or for very deep ones."""

_NO_OVERRIDES: Mapping[str, "Given"] = {}


class Given(NamedTuple):
    """A value that overrides the configuration."""

    value: object
    source: str
    """Name of its source, for errors."""


class NoEffect(NamedTuple):
    """The reason why a key is accepted without effect. Part of the annotation of the key's field."""

    reason: str
    is_harmless: bool = True
    """Whether the key can be ignored. Otherwise it asks for an unsupported feature."""


class ForeignKeys(NamedTuple):
    """Valid keys without a field in the model."""

    models: Sequence[type[BaseModel]]
    """Models whose keys may stand in the same file."""
    without_effect: Mapping[str, NoEffect]
    """Keys of the original without effect, by key or group of keys."""


class Unknown(NamedTuple):
    """An unknown key or variable."""

    what: str
    hint: str
    """The probable intention, as the end of the sentence; may be empty."""


@dataclass(frozen=True, slots=True)
class Reading(Generic[ModelT]):
    """The result of reading a configuration, for :func:`settle`. All texts are one line and contain no password."""

    source: str
    made: ModelT | None
    """``None`` if there are errors."""
    errors: tuple[str, ...]
    unknown: tuple[Unknown, ...]
    without_effect: Mapping[str, NoEffect]
    """The given keys that have no effect."""
    sources: Mapping[str, str]
    """The source of each key's value; other keys have their defaults."""
    replaced: Mapping[str, str]
    """Keys whose value in the file is overridden, with the source of the override."""

    @property
    def overridings(self) -> list[str]:
        """One text for each overridden key of the file."""
        return [f"{what} overrides '{key}' of {self.source}" for key, what in self.replaced.items()]

    @property
    def effectless(self) -> list[str]:
        """One text for each key without effect."""
        return [
            f"{self.sources.get(key, self.source)}: key '{shown_key(key)}' has no effect: {why.reason}"
            for key, why in self.without_effect.items()
        ]

    @property
    def effectless_line(self) -> str | None:
        """One line for all keys without effect."""
        by_reason: dict[str, list[str]] = {}
        for key, why in self.without_effect.items():
            by_reason.setdefault(why.reason, []).append(shown_key(key))
        told = [f"{', '.join(group)} ({reason})" for reason, group in by_reason.items()]
        return f"{self.source}: keys without effect: {'; '.join(told)}" if told else None


def settle(reading: Reading[ModelT], *, strict: bool = False) -> ModelT:
    """The model of a configuration; logs the warnings.

    Args:
        reading: The result of reading.
        strict: Treat unknown keys and keys without effect as errors.

    Raises:
        ConfigError: The first error of the configuration.
    """
    errors = [*reading.errors, *(strictly(reading) if strict else ())]
    if errors:
        raise ConfigError(errors[0])
    assert reading.made is not None
    for text in ignored(reading.unknown):
        logger.warning("%s", text)
    for text in reading.overridings:
        logger.info("%s", text)
    if reading.effectless_line is not None:
        harmless = all(why.is_harmless for why in reading.without_effect.values())
        logger.log(logging.INFO if harmless else logging.WARNING, "%s", reading.effectless_line)
    return reading.made


def strictly(reading: Reading[ModelT]) -> list[str]:
    """Messages that are errors only in a strict check."""
    return [*(f"{each.what}{each.hint}" for each in reading.unknown), *reading.effectless]


def ignored(unknown: Sequence[Unknown]) -> list[str]:
    """A text for each key or variable that is ignored."""
    return [f"{each.what} is ignored{each.hint}" for each in unknown]


def examine(
    mapping: Mapping[str, object],
    model: type[ModelT],
    *,
    source: str,
    prefix: str,
    defaults: Mapping[str, object],
    foreign: ForeignKeys,
    overrides: Mapping[str, Given] = _NO_OVERRIDES,
    unknown: Sequence[Unknown] = (),
    hint: Callable[[str], str] | None = None,
) -> Reading[ModelT]:
    """Read a mapping with dotted or nested keys.

    ``source`` is the mapping's name in errors. ``prefix`` precedes every key of the model; other keys are ignored.
    ``defaults``, by keys without the prefix, replace the model's own, and ``overrides`` replace values of the mapping;
    ``unknown`` is reported with unknown keys, and ``hint`` gives the remedy for a missing key. Errors are missing keys,
    wrong values, and refusals of the model itself. Raises ``ConfigError`` for a key given twice, or too many keys.
    """
    values = _values(mapping, source)
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    known = keys(model)
    strange = {key: own[key] for key in sorted(own.keys() - known)}
    given = {key: value for key, value in own.items() if key in known}
    counted = {key: each for key, each in overrides.items() if each.value is not None}
    sources = {prefix + key: source for key in given} | {prefix + key: each.source for key, each in counted.items()}
    replaced = {
        prefix + key: each.source
        for key, each in counted.items()
        if key in given and str(given[key]).lower() != str(each.value).lower()
    }
    given.update({key: each.value for key, each in counted.items()})
    made, errors = None, []
    try:
        made = model.model_validate(_nest(model, {**defaults, **given}))
    except ValidationError as error:  # it could show secrets: not kept as a cause
        errors = [
            _explain(each, prefix, source, strange, sources, hint)
            for each in error.errors(include_url=False)
            if each["type"] != "default_factory_not_called"  # another error reports it
        ]
    of_model = {prefix + key: why for key, why in _without_effect(model).items() if key in given}
    strangers, of_nobody = _told(list(strange), prefix, [prefix + key for key in sorted(known)], source, foreign)
    return Reading(source, made, tuple(errors), (*unknown, *of_nobody), {**of_model, **strangers}, sources, replaced)


def _values(mapping: Mapping[str, object], source: str) -> dict[str, object]:
    """The values of a mapping by dotted keys."""
    values: dict[str, object] = {}
    for position, (key, value) in enumerate(_flatten(mapping, "", _MAX_DEPTH)):
        if key is None or position >= _MAX_KEYS:
            limit = f"more than {_MAX_KEYS}" if key is not None else f"nested more than {_MAX_DEPTH} deep"
            raise ConfigError(f"{source} is not a configuration: its keys are {limit}")
        if key in values:
            raise ConfigError(f"key '{shown_key(key)}' is given twice in {source}")
        if value is not None:
            values[key] = value
    return values


def _flatten(mapping: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str | None, object]]:
    """Dotted keys and their values, ``None`` for keys nested too deep. An empty group counts as a key, too."""
    for name, value in mapping.items():
        key = f"{prefix}{name if isinstance(name, str) else shown(name)}"
        if not isinstance(value, Mapping):
            yield key, value
        elif depth == 0:
            yield None, None
        else:
            if not value:
                yield key, None
            yield from _flatten(value, f"{key}.", depth - 1)


def _parts(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """The keys of a model's fields, with the model of each field that is a model itself."""
    for field in model.model_fields.values():
        annotation = field.annotation
        inner = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
        yield str(field.validation_alias), inner


def keys(model: type[BaseModel]) -> set[str]:
    """All dotted keys of a model."""
    found = set()
    for key, inner in _parts(model):
        found.update({key} if inner is None else {f"{key}.{inner_key}" for inner_key in keys(inner)})
    return found


def secret_keys(model: type[BaseModel]) -> set[str]:
    """The dotted keys of a model whose values are passwords or tokens."""
    found: set[str] = set()
    for field, (key, inner) in zip(model.model_fields.values(), _parts(model), strict=True):
        if inner is not None:
            found.update(f"{key}.{inside}" for inside in secret_keys(inner))
        elif SecretStr in get_args(field.annotation):
            found.add(key)
    return found


def _nest(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, object]:
    """Put the keys of models inside the model (TLS) into mappings of their own."""
    nested = dict(values)
    for key, inner in _parts(model):
        if inner is not None:
            inside = f"{key}."
            mine = [name for name in values if name.startswith(inside)]
            nested[key] = {name.removeprefix(inside): nested.pop(name) for name in mine}
    return nested


def flat(made: BaseModel) -> dict[str, object]:
    """The values of a model by their dotted keys: a mapping that makes the same model."""
    found: dict[str, object] = {}
    for name, field in type(made).model_fields.items():
        value, key = getattr(made, name), str(field.validation_alias)
        if isinstance(value, BaseModel):
            found.update({f"{key}.{inner}": each for inner, each in flat(value).items()})
        else:
            found[key] = value
    return found


def _without_effect(model: type[BaseModel]) -> dict[str, NoEffect]:
    """The model's keys that are accepted without effect."""
    found: dict[str, NoEffect] = {}
    for field, (key, inner) in zip(model.model_fields.values(), _parts(model), strict=True):
        if inner is not None:
            found.update({f"{key}.{inside}": why for inside, why in _without_effect(inner).items()})
        reasons = [each for each in field.metadata if isinstance(each, NoEffect)]
        if reasons:
            found[key] = reasons[0]
    return found


def _explain(
    error: ErrorDetails,
    prefix: str,
    source: str,
    unknown: Mapping[str, object],
    sources: Mapping[str, str],
    hint: Callable[[str], str] | None,
) -> str:
    """One line of text for an error of pydantic."""
    expected = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    expected = expected.partition(", unable to ")[0]
    if not error["loc"]:  # from a check of the whole model, whose text names the keys
        named = {
            where for key, where in sources.items() if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", expected)
        }
        return f"{expected} in {' and '.join(sorted(named)) or source}"
    key = prefix + ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        is_list = _list_for_group(key, prefix, unknown)
        if is_list is not None:
            return f"missing key '{key}' in {source}: {is_list}"
        near = _nearest(key, [prefix + name for name in unknown])
        if near:
            return f"missing key '{key}' in {source}; did you mean '{shown_key(near)}'?"
        return f"missing key '{key}' in {source}" + ("" if hint is None else f"; {hint(key)}")
    source = sources.get(key, source)
    if isinstance(error["input"], Mapping):  # from a check of a group, in which there may be passwords
        return f"wrong values below '{key}' in {source}: {expected}"
    if key.lower().endswith(("password", "token.value")):
        return f"wrong value for key '{key}' in {source}: expected text; put it in quotes"
    if error["type"] == "string_type":
        expected = "expected text; put it in quotes"
    return f"wrong value for key '{key}' in {source}: {shown(error['input'])}; {expected}"


def _list_for_group(key: str, prefix: str, given: Mapping[str, object]) -> str | None:
    """The error text if a list was given for a group of keys; ``None`` otherwise."""
    for name, value in given.items():
        if key.startswith(f"{prefix}{name}.") and isinstance(value, list | tuple):
            return f"'{prefix}{name}' is a list there; expected keys below it"
    return None


def _told(
    strange: Sequence[str], prefix: str, known: Sequence[str], source: str, foreign: ForeignKeys
) -> tuple[dict[str, NoEffect], list[Unknown]]:
    """Sort keys without a field in the model into keys without effect and unknown keys."""
    of_other_models = {key for model in foreign.models for key in keys(model)}
    without_effect: dict[str, NoEffect] = {}
    unknown = []
    for name in strange:
        key = prefix + name
        why = next((why for group, why in foreign.without_effect.items() if _inside(key, group)), None)
        if why is not None:
            without_effect[key] = why
        elif key not in of_other_models:
            near = _nearest(key, known)
            hint = f"; did you mean '{near}'?" if near else ""
            unknown.append(Unknown(f"{source}: unknown key '{shown_key(key)}'", hint))
    return without_effect, unknown


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")


def _nearest(key: str, candidates: Sequence[str]) -> str | None:
    """The candidate that was probably meant: ``key`` is misspelt, cut short, or differs in case."""
    if len(key) > 2 * SHOWN_LENGTH:  # the time of the comparison grows with the product of both lengths
        return None
    by_lower_case = {name.lower(): name for name in candidates if len(name) <= 2 * SHOWN_LENGTH}
    wanted = key.lower()
    shortened = [name for name in by_lower_case if name.startswith(wanted) or wanted.startswith(name)]
    found = difflib.get_close_matches(wanted, by_lower_case, n=1, cutoff=_NEAR) or shortened
    return by_lower_case[found[0]] if found else None
