"""Configuration on the command line: overrides, and the output of a check."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import yaml
from pydantic import BaseModel, SecretStr

from waltz.common.brief import one_line
from waltz.common.config.reader import ModelT, Reading, flat, ignored, strictly
from waltz.common.config.sources import Setting

HIDDEN = "********"
"""Shown instead of a password."""

DEFAULT = "default"
"""The source of a value that was not set anywhere."""

Look = Callable[[BaseModel, str], list[str]]
"""Checks the things that a configuration names, such as files, and returns their faults. The text is the name of the
configuration."""

_LONGEST_ALIGNED = 56


def setting(text: str) -> Setting:
    """Parse ``KEY=VALUE`` for argparse. The text is not shown: there may be a password in it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError("expected KEY=VALUE, such as cluster.root=/waltz")
    return Setting(key, value)


def setting_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for overrides and for the strictness of a check."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        dest="settings",
        metavar="KEY=VALUE",
        help="override the configuration file and the environment; may be repeated",
    )
    parser.add_argument(
        "--strict", action="store_true", help="treat unknown keys and keys without effect as errors, not as warnings"
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check, without passwords."""

    source: str
    values: Mapping[str, object]
    """The resulting values by keys; empty if the configuration has errors."""
    sources: Mapping[str, str]
    """The source of each value."""
    errors: Sequence[str]
    warnings: Sequence[str]

    def lines(self) -> list[str]:
        """The configuration as an equivalent file without passwords; the sources are comments."""
        texts = {key: _line(key, value) for key, value in self.values.items()}
        width = min(max(map(len, texts.values()), default=0), _LONGEST_ALIGNED)
        return [f"{text:<{width}}  # {one_line(self.sources[key])}" for key, text in texts.items()]

    def verdict(self) -> str:
        """The result of the check in one line."""
        found = [_count(len(self.errors), "error"), _count(len(self.warnings), "warning")]
        return f"{self.source}: {', '.join(found)}" if self.errors else f"{self.source} is valid; {found[1]}"


def checked(reading: Reading[ModelT], looks: Sequence[Look], *, strict: bool) -> Checked:
    """Check a configuration and the things that it names."""
    values, problems = {}, []
    if reading.made is not None:
        values, problems = _shown_values(reading.made), found_by(looks, reading.made, reading.source)
    warnings = [*ignored(reading.unknown), *filter(None, [reading.effectless_line])]
    return Checked(
        source=reading.source,
        values=values,
        sources={key: reading.sources.get(key, DEFAULT) for key in values},
        errors=[*reading.errors, *problems, *(strictly(reading) if strict else ())],
        warnings=[] if strict else warnings,
    )


def found_by(looks: Sequence[Look], config: BaseModel, source: str) -> list[str]:
    """The faults that all ``looks`` find."""
    return [text for look in looks for text in look(config, source)]


def print_check(found: Checked) -> int:
    """Print the configuration on standard output and its faults on standard error; returns the exit code."""
    for line in found.lines():
        print(line)  # noqa: T201 - the requested output
    sys.stdout.flush()
    for text in found.warnings:
        print(f"Warning: {text}", file=sys.stderr)  # noqa: T201
    for text in found.errors:
        print(f"Error: {text}", file=sys.stderr)  # noqa: T201
    print(found.verdict(), file=sys.stderr)  # noqa: T201
    return 1 if found.errors else 0


def _shown_values(made: BaseModel) -> dict[str, object]:
    return {key: HIDDEN if isinstance(value, SecretStr) else value for key, value in sorted(flat(made).items())}


def _line(key: str, value: object) -> str:
    is_plain = not isinstance(value, str) or value.isprintable()
    style = None if is_plain else '"'
    return yaml.safe_dump({key: value}, allow_unicode=is_plain, width=sys.maxsize, default_style=style).rstrip("\n")


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"
