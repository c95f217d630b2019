"""What the site shows otherwise than the sources say it: see mkdocs.yml."""

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod):`(?:~[\w.]*\.)?([^`]+)`")
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")


class PlainRoles(griffe.Extension):
    """Names that docstrings refer to are shown as code."""

    def on_instance(self, *, obj: griffe.Object, **_arguments: Any) -> None:
        """Called for each object that was read."""
        if obj.docstring is not None:
            obj.docstring.value = _ROLE.sub(r"`\1`", obj.docstring.value)


def on_page_markdown(markdown: str, **arguments: Any) -> str:
    """Files beside the documentation are named, not linked: they are not on the site."""
    page = arguments["page"]
    return markdown if "/" in page.file.src_path else _OUTSIDE.sub(r"`\1`", markdown)
