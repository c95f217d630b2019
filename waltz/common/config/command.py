"""Configuration on the command line: what overrides it there, and what a check of it prints."""

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
"""In place of a password."""

DEFAULT = "default"
"""The source of what nothing was said about."""

Look = Callable[[BaseModel, str], list[str]]
"""Tells what is wrong with what a configuration names, such as files; the text is how the configuration is called."""

_LONGEST_ALIGNED = 56


def setting(text: str) -> Setting:
    """Parse ``KEY=VALUE`` for argparse. The text is not shown: there may be a password in it."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise argparse.ArgumentTypeError("expected KEY=VALUE, such as cluster.root=/waltz")
    return Setting(key, value)


def setting_options(parser: argparse.ArgumentParser) -> None:
    """Let the command line say what counts, and how strictly the configuration is looked at."""
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        type=setting,
        dest="settings",
        metavar="KEY=VALUE",
        help="let this count, whatever the configuration file and the environment say; may be repeated",
    )
    parser.add_argument(
        "--strict", action="store_true", help="take unknown keys and keys without effect for errors, not for warnings"
    )


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of a check, without passwords."""

    source: str
    values: Mapping[str, object]
    """The configuration that would count, by keys; empty if there is none."""
    sources: Mapping[str, str]
    """Where each of the values is from."""
    errors: Sequence[str]
    warnings: Sequence[str]

    def lines(self) -> list[str]:
        """The configuration as a file that says the same, but for passwords; with the sources as comments."""
        texts = {key: _line(key, value) for key, value in self.values.items()}
        width = min(max(map(len, texts.values()), default=0), _LONGEST_ALIGNED)
        return [f"{text:<{width}}  # {one_line(self.sources[key])}" for key, text in texts.items()]

    def verdict(self) -> str:
        """One line for all of it."""
        found = [_count(len(self.errors), "error"), _count(len(self.warnings), "warning")]
        return f"{self.source}: {', '.join(found)}" if self.errors else f"{self.source} is valid; {found[1]}"


def checked(reading: Reading[ModelT], looks: Sequence[Look], *, strict: bool) -> Checked:
    """What is to be said of a configuration, and of what it names."""
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
    """All that is wrong with what a configuration names."""
    return [text for look in looks for text in look(config, source)]


def print_check(found: Checked) -> int:
    """The configuration on standard output, what is wrong with it on standard error; the exit code."""
    for line in found.lines():
        print(line)  # noqa: T201 - what was asked for
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
