"""YAML files with configuration. Every error is one line with file and line number."""

import os
from collections.abc import Hashable
from pathlib import Path

import yaml

from waltz.common.brief import one_line, shown, shown_key
from waltz.common.errors import ConfigError

_MAX_FILE_BYTES = 1 << 20
_MAX_KEYS = 1000
"""Limit of keys in one group: with YAML aliases a few lines can stand for a huge number of keys."""

_TAB = r"'\t'"


def read_yaml(path: str | os.PathLike[str]) -> dict[str, object]:
    """The keys of a YAML file, nested as in the file. Raises ``ConfigError``."""
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
        # The cause would show a part of the file, perhaps with a password.
        problem = "found a tab; indent with spaces" if _TAB in (error.problem or "") else one_line(error.problem)
        raise ConfigError(f"{path}{line}: not valid YAML: {problem}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {one_line(error)}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}, line 1: expected lines of the form 'key: value', found {shown(document)}")
    return document


class _Loader(yaml.SafeLoader):
    """Plain YAML, but a repeated key is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"key '{shown_key(name.value)}' is given twice", problem_mark=name.start_mark
                    )
                seen.add(name.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:  # merges of merges double with each line
            raise yaml.constructor.ConstructorError(problem="too many keys", problem_mark=node.start_mark)


def _parse(text: str) -> object:
    try:
        document: object = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as error:  # constructors of numbers, dates and the rest raise all kinds of errors
        raise yaml.YAMLError(f"a value cannot be read ({type(error).__name__})") from None
    return document
