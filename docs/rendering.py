"""What the site shows otherwise than the sources say it: see mkdocs.yml."""

import hashlib
import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError

MERMAID_SHA256 = "74d7c46dabca328c2294733910a8aa1ed0c37451776e8d5295da38a2b758fb9b"
"""Of ``dist/mermaid.min.js`` in mermaid 11.16.0 of npm, which the Python package mermaidx brings along."""

_ROLE = re.compile(r":(?:class|func|meth|attr|data|mod):`(?:~[\w.]*\.)?([^`]+)`")
_MERMAID_URL = re.compile(r'"https://unpkg\.com/mermaid@11/[^"]*"')
_OWN_MERMAID = """new URL("mermaid.min.js",document.querySelector('script[src*="/bundle."]').src).href"""
_POLYFILL = '"https://unpkg.com/resize-observer-polyfill"'
_NO_SCRIPT = '"data:,"'
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


def on_post_build(config: Any, **_arguments: Any) -> None:
    """Put the script that draws diagrams into the site, where the theme takes it from elsewhere otherwise."""
    scripts = Path(config["site_dir"]) / "assets" / "javascripts"
    content = Path(str(distribution("mermaidx").locate_file("mermaidx/assets/mermaid.js"))).read_bytes()
    if hashlib.sha256(content).hexdigest() != MERMAID_SHA256:
        raise PluginError(
            "the script in mermaidx is not mermaid 11.16.0: compare it with npm's, and change its hash here"
        )
    (scripts / "mermaid.min.js").write_bytes(content)
    (bundle,) = scripts.glob("bundle.*.min.js")
    bundle.write_text(with_own_diagrams(bundle.read_text("utf-8")), "utf-8")


def with_own_diagrams(bundle: str) -> str:
    """The script of the theme, but with the site's own script of diagrams, which it loads on pages that have some.

    Its other script from elsewhere is for browsers older than mermaid's code; they do without.
    """
    changed, count = _MERMAID_URL.subn(_OWN_MERMAID, bundle)
    if count != 1:
        raise PluginError(f"the theme names the script of diagrams {count} times, not once: see docs/rendering.py")
    return changed.replace(_POLYFILL, _NO_SCRIPT)
