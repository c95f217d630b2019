"""Reads a large JSON object in small pieces: half a megabyte at once would hold a loop for 10 ms. Pure."""

import json
import re
from collections.abc import Generator
from typing import Final

from waltz.common.errors import WaltzError

MAX_BYTES: Final = 512 << 10
"""Largest document."""

_ELEMENTS_PER_PIECE = 100

_decode = json.JSONDecoder().raw_decode
_space = re.compile(r"[ \t\n\r]*").match


class AclError(WaltzError):
    """A document of access rules cannot be used."""


def read_json(data: bytes, what: str) -> Generator[None, None, dict[str, object]]:
    """Read an object with yields in between: after its members, and after some elements of lists among these.

    Args:
        data: The object's JSON in UTF-8.
        what: What the data are, for errors.

    Raises:
        AclError: The data are no JSON object, have a member twice, or exceed :data:`MAX_BYTES`.
    """
    if len(data) > MAX_BYTES:
        raise AclError(f"{what} have {len(data)} bytes; the limit is {MAX_BYTES}")
    try:
        return (yield from _object(data.decode()))
    except (ValueError, RecursionError) as error:
        raise AclError(f"{what} are no JSON object: {error}") from None


def _object(text: str) -> Generator[None, None, dict[str, object]]:
    found: dict[str, object] = {}
    at = _after(text, 0, "{")
    more = not text.startswith("}", at)
    while more:
        key, at = _decode(text, at)
        if not isinstance(key, str):
            raise ValueError(f"{key!r} is no name of a member")
        if key in found:
            raise ValueError(f"{key!r} is there twice")
        at = _after(text, _skip(text, at), ":")
        if text.startswith("[", at):
            found[key], at = yield from _list(text, at)
        else:
            found[key], at = _decode(text, at)
        at = _skip(text, at)
        more = text.startswith(",", at)
        if more:
            at = _after(text, at, ",")
        yield
    at = _after(text, at, "}")
    if at != len(text):
        raise ValueError(f"something follows at character {at}")
    return found


def _list(text: str, at: int) -> Generator[None, None, tuple[list[object], int]]:
    found: list[object] = []
    at = _after(text, at, "[")
    more = not text.startswith("]", at)
    while more:
        element, at = _decode(text, at)
        found.append(element)
        at = _skip(text, at)
        more = text.startswith(",", at)
        if more:
            at = _after(text, at, ",")
        if not len(found) % _ELEMENTS_PER_PIECE:
            yield
    return found, _after(text, at, "]")


def _skip(text: str, at: int) -> int:
    found = _space(text, at)
    assert found is not None, "no space matches, too"
    return found.end()


def _after(text: str, at: int, character: str) -> int:
    """The beginning of what follows an expected character."""
    at = _skip(text, at)
    if not text.startswith(character, at):
        raise ValueError(f"{character!r} is expected at character {at}")
    return _skip(text, at + 1)
