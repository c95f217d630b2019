"""Values and texts from configurations for error texts: short, and in one line. Pure."""

import reprlib

SHOWN_LENGTH = 60

_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 2
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 2 * SHOWN_LENGTH


def shown(value: object) -> str:
    """A value for an error text, cut to a bounded length."""
    try:
        text = _BRIEF.repr(value)
    except ValueError:  # Python refuses to print numbers with thousands of digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}..."


def shown_key(key: str) -> str:
    """A key as it was written; a very long or unprintable key is abridged."""
    return key if key.isprintable() and len(key) <= 2 * SHOWN_LENGTH else shown(key).strip("'")


def one_line(text: object) -> str:
    """A library's message without its line breaks."""
    line = " ".join(str(text).split())
    return line if len(line) <= 4 * SHOWN_LENGTH else f"{line[: 4 * SHOWN_LENGTH]}..."
