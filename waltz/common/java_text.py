"""Texts of failures on the original's wire: a Java class name, a colon, and a message."""

import re

_CLASS = re.compile(r"(?:[a-z_][a-z0-9_]*\.)+(?P<name>[A-Z][A-Za-z0-9_$]*)(?:: |\Z)")
_MEANING = {"NoSuchFileException": "there is no file ", "FileNotFoundException": "there is no file "}
"""Classes whose message is incomplete without the class."""


def for_people(text: str) -> str:
    """The message without the class; the bare class name if there is no message."""
    found = _CLASS.match(text)
    if found is None:
        return text
    rest = text[found.end() :]
    return _MEANING.get(found["name"], "") + rest if rest else found["name"]
