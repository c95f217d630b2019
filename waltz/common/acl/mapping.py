r"""The principal of a certificate's subject, by rules in Kafka's syntax (``ssl.principal.mapping.rules`` there). Pure.

Rules are separated by commas; the first whose pattern matches the whole subject decides. ``DEFAULT`` takes the subject
as it is. ``RULE:pattern/replacement/`` makes a principal, in which ``$1`` stands for the first group of the pattern; an
``L`` or ``U`` behind it turns the principal into lower or upper case. A slash in a pattern is ``\/``.

Patterns are those of RE2, whose time grows with the subject's length only: a hostile subject cannot hold a node.
"""

import re
from collections.abc import Callable
from typing import Final

from waltz.common.access import ANONYMOUS, Source
from waltz.common.acl.document import ALL, GROUP, MAX_PRINCIPAL_CHARACTERS
from waltz.common.errors import ConfigError

MAX_SUBJECT_CHARACTERS: Final = 1024
"""A longer subject is no identity."""

MAX_MAPPING_CHARACTERS: Final = 4096
"""Longest list of rules."""

DEFAULT: Final = "DEFAULT"
"""The rule that takes the subject as it is."""

Mapping = Callable[[str], str]
"""Makes the principal of a subject; :data:`~waltz.common.access.ANONYMOUS` if no rule matches."""

_Rule = Callable[[str], str | None]

_FIELD = r"((?:\\.|[^\\/])*)"
_RULE = re.compile(rf"\s*(?:(DEFAULT)|RULE:{_FIELD}/{_FIELD}/([LU]?))\s*(?:,\s*|$)")
_GROUP_OR_ESCAPE = re.compile(r"\$(\d+)|\\(.)")


def principal_sources(text: str) -> tuple[Source, ...]:
    """The sources of ``acl.principalFrom``, in their order. Raises ``ConfigError``."""
    named = [part.strip() for part in text.split(",")]
    known = [source.value for source in Source]
    for name in named:
        if name not in known or named.count(name) > 1:
            raise ConfigError(f"acl.principalFrom: {text!r} is no list of some of {', '.join(known)}, each once")
    return tuple(map(Source, named))


def principal_mapping(text: str) -> Mapping:
    """The mapping of a list of rules.

    The principal of a peer without a certificate, of a subject that no rule matches, and of one whose principal cannot
    stand in an access rule, is :data:`~waltz.common.access.ANONYMOUS`.

    Raises:
        ConfigError: The text is no list of rules, a pattern is none of RE2, or RE2 is not installed.
    """
    if len(text) > MAX_MAPPING_CHARACTERS:
        raise ConfigError(f"acl.principalMapping has {len(text)} characters; the limit is {MAX_MAPPING_CHARACTERS}")
    rules: list[_Rule] = []
    at = 0
    while at < len(text) or not rules:
        found = _RULE.match(text, at)
        if found is None:
            raise ConfigError(
                f"acl.principalMapping: {text[at : at + 60]!r} is neither DEFAULT nor RULE:pattern/replacement/,"
                " RULE:pattern/replacement/L or RULE:pattern/replacement/U"
            )
        rules.append(_same if found[1] else _rule(found[2], found[3], found[4]))
        at = found.end()

    def principal(subject: str) -> str:
        if subject == ANONYMOUS or len(subject) > MAX_SUBJECT_CHARACTERS:
            return ANONYMOUS
        for rule in rules:
            made = rule(subject)
            if made is not None:
                return made if is_principal(made) else ANONYMOUS
        return ANONYMOUS

    return principal


def _same(subject: str) -> str:
    return subject


def _rule(pattern: str, replacement: str, case: str) -> _Rule:
    try:
        import re2  # only who maps needs it
    except ImportError:
        raise ConfigError(
            "acl.principalMapping needs the package google-re2 for its rules: pip install 'waltz-log[acl]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern.replace(r"\/", "/"), options)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise ConfigError(f"acl.principalMapping: {pattern!r} is no pattern: {reason}") from None
    for number, _ in _GROUP_OR_ESCAPE.findall(replacement):
        if number and int(number) > compiled.groups:
            raise ConfigError(f"acl.principalMapping: the pattern {pattern!r} has no group {number}")

    def made(subject: str) -> str | None:
        match = compiled.fullmatch(subject)
        if match is None:
            return None
        text = _GROUP_OR_ESCAPE.sub(lambda part: (match[int(part[1])] or "") if part[1] else part[2], replacement)
        return text.lower() if case == "L" else text.upper() if case == "U" else text

    return made


def is_principal(text: str) -> bool:
    """Whether a text stands for one principal in a rule."""
    return (
        0 < len(text) <= MAX_PRINCIPAL_CHARACTERS and text.isprintable() and text != ALL and not text.startswith(GROUP)
    )
