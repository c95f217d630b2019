"""The machine that reads configuration: YAML or a mapping in, a checked model out.

A key may be written dotted, nested, or as any mix of both; numbers may be written as strings. What is wrong is said in
one line that names the key, the file and, where there is one, the near miss. A key that nothing knows is a warning with
the nearest known name, since a misspelt option otherwise silently keeps its default.
"""

import difflib
import logging
import os
import reprlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from waltz.common.errors import ConfigError

logger = logging.getLogger(__name__)

ModelT = TypeVar("ModelT", bound=BaseModel)

_NEAR = 0.8
"""Similarity above which an unknown key is taken for a misspelt known one."""

_SHOWN_LENGTH = 60

_MAX_FILE_BYTES = 1 << 20
_MAX_KEYS = 1000
_MAX_DEPTH = 20
"""Of nested keys. YAML aliases let a few lines say endlessly many, and endlessly deep ones."""

_NO_OVERRIDES: Mapping[str, "Given"] = {}

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 2
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 2 * _SHOWN_LENGTH


class Given(NamedTuple):
    """A value that counts instead of what the configuration says."""

    value: object
    source: str
    """How errors call where it was taken from."""


class ForeignKeys(NamedTuple):
    """Keys that no field of a model has, and that are no mistake nevertheless. A key stands for its whole group."""

    models: Sequence[type[BaseModel]]
    """Whose keys may stand in the same file."""
    without_effect: Sequence[str]
    """Nothing is lost by ignoring them."""
    unsupported: Mapping[str, str]
    """They ask for something that does not exist here; what does instead."""


def read_yaml(path: str | os.PathLike[str]) -> dict[str, object]:
    """The keys of a YAML file, nested as they stand there. Raises ``ConfigError``."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} is not a configuration file: it has more than {_MAX_FILE_BYTES} bytes")
        document = _parse(content.decode())
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file in UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        # The cause would show a piece of the file, in which there may be a password.
        raise ConfigError(f"{path}{line}: not valid YAML: {_one_line(error.problem)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_one_line(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}, line 1: expected lines of the form 'key: value', found {_shown(document)}")
    return document


def make_model(
    mapping: Mapping[str, object],
    model: type[ModelT],
    *,
    source: str,
    prefix: str,
    defaults: Mapping[str, object],
    foreign: ForeignKeys,
    overrides: Mapping[str, Given] = _NO_OVERRIDES,
    hint: Callable[[str], str] | None = None,
) -> ModelT:
    """The model that a mapping describes, with dotted or nested keys.

    ``source`` is how errors call the mapping. ``prefix`` stands before every key of the model; other keys are left
    alone. ``defaults``, by keys without the prefix, stand in for the model's own, and ``overrides`` for what the
    mapping says; ``hint`` tells what to do about a missing key. Raises ``ConfigError`` for a missing key, a wrong
    value, a key given twice, and what the model itself refuses.
    """
    values: dict[str, object] = {}
    for position, (key, value) in enumerate(_flatten(mapping, "", _MAX_DEPTH)):
        if key is None or position >= _MAX_KEYS:
            limit = f"more than {_MAX_KEYS}" if key is not None else f"nested more than {_MAX_DEPTH} deep"
            raise ConfigError(f"{source} is not a configuration: its keys are {limit}")
        if key in values:
            raise ConfigError(f"key '{_shown_key(key)}' is given twice in {source}")
        if value is not None:
            values[key] = value
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    known = keys(model)
    unknown = sorted(own.keys() - known)
    given = {key: value for key, value in own.items() if key in known}
    given.update({key: each.value for key, each in overrides.items() if each.value is not None})
    try:
        made = model.model_validate(_nest(model, {**defaults, **given}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        sources = {prefix + key: each.source for key, each in overrides.items()}
        # The cause would show secrets.
        raise ConfigError(_explain(first, prefix, source, unknown, sources, hint)) from None
    _warn([prefix + key for key in unknown], [prefix + key for key in known], source, foreign)
    return made


class _Loader(yaml.SafeLoader):
    """YAML as usual, except that a key given twice is an error and not silently the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"key '{_shown_key(name.value)}' is given twice", problem_mark=name.start_mark
                    )
                seen.add(name.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:  # merges of merges double with every line
            raise yaml.constructor.ConstructorError(problem="too many keys", problem_mark=node.start_mark)


def _parse(text: str) -> object:
    try:
        document: object = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as error:  # its constructors of numbers, dates and the rest raise whatever they stumble over
        raise yaml.YAMLError(f"a value cannot be read ({type(error).__name__})") from None
    return document


def _flatten(mapping: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str | None, object]]:
    """Dotted keys and their values, ``None`` for what is nested too deep. An empty group counts as a key too."""
    for name, value in mapping.items():
        key = f"{prefix}{name if isinstance(name, str) else _shown(name)}"
        if not isinstance(value, Mapping):
            yield key, value
        elif depth == 0:
            yield None, None
        else:
            if not value:
                yield key, None
            yield from _flatten(value, f"{key}.", depth - 1)


def _parts(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """The keys of a model's fields, and the model behind those that are models themselves."""
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


def _nest(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, object]:
    """Put the keys of models inside the model (TLS) into mappings of their own."""
    nested = dict(values)
    for key, inner in _parts(model):
        if inner is not None:
            inside = f"{key}."
            mine = [name for name in values if name.startswith(inside)]
            nested[key] = {name.removeprefix(inside): nested.pop(name) for name in mine}
    return nested


def _explain(
    error: ErrorDetails,
    prefix: str,
    source: str,
    unknown: Sequence[str],
    sources: Mapping[str, str],
    hint: Callable[[str], str] | None,
) -> str:
    """One line for something that pydantic found wrong."""
    expected = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if not error["loc"]:  # found by a check of the whole model, which names its keys itself
        return f"{expected} in {source}"
    key = prefix + ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        near = _nearest(key, [prefix + name for name in unknown])
        if near:
            return f"missing key '{key}' in {source}; did you mean '{_shown_key(near)}'?"
        return f"missing key '{key}' in {source}" + ("" if hint is None else f"; {hint(key)}")
    source = sources.get(key, source)
    if key.lower().endswith("password"):
        return f"wrong value for key '{key}' in {source}: expected text; put it in quotes"
    if error["type"] == "string_type":
        expected = "expected text; put it in quotes"
    return f"wrong value for key '{key}' in {source}: {_shown(error['input'])}; {expected}"


def _warn(unknown: Sequence[str], known: Sequence[str], source: str, foreign: ForeignKeys) -> None:
    of_other_models = {key for model in foreign.models for key in keys(model)}
    for key in unknown:
        unsupported = next((instead for group, instead in foreign.unsupported.items() if _inside(key, group)), None)
        if unsupported is not None:
            logger.warning("%s: key '%s' has no effect; %s", source, _shown_key(key), unsupported)
        elif key not in of_other_models and not any(_inside(key, name) for name in foreign.without_effect):
            near = _nearest(key, known)
            hint = f"; did you mean '{near}'?" if near else ""
            logger.warning("%s: unknown key '%s' is ignored%s", source, _shown_key(key), hint)


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")


def _nearest(key: str, candidates: Sequence[str]) -> str | None:
    """The candidate that was probably meant: misspelt, cut short, or in other case."""
    if len(key) > 2 * _SHOWN_LENGTH:  # the comparison takes the time of both lengths' product
        return None
    by_lower_case = {name.lower(): name for name in candidates if len(name) <= 2 * _SHOWN_LENGTH}
    wanted = key.lower()
    shortened = [name for name in by_lower_case if name.startswith(wanted) or wanted.startswith(name)]
    found = difflib.get_close_matches(wanted, by_lower_case, n=1, cutoff=_NEAR) or shortened
    return by_lower_case[found[0]] if found else None


def _shown(value: object) -> str:
    """What was found, for an error text: never long, whatever is in it."""
    try:
        text = _BRIEF.repr(value)
    except ValueError:  # Python does not write numbers with thousands of digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _shown_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= 2 * _SHOWN_LENGTH else _shown(key).strip("'")


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 4 * _SHOWN_LENGTH else f"{line[: 4 * _SHOWN_LENGTH]}..."
