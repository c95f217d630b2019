"""The API reference has every public name, and the site has every page."""

import re
from pathlib import Path

import waltz
import waltz.blocking
import waltz.table

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = (ROOT / "mkdocs.yml").read_text()

PUBLIC = {
    *(f"{module}.{name}" for name, module in waltz._HOME_OF.items()),
    *(f"{module}.{name}" for module, names in waltz.table._HOMES.items() for name in names),
    *(f"waltz.blocking.{name}" for name in waltz.blocking.__all__),
}


def test_every_public_name_is_in_the_reference_once() -> None:
    pages = "".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    shown = re.findall(r"^::: (\S+)$", pages, flags=re.MULTILINE)
    assert len(shown) == len(set(shown))
    assert set(shown) >= PUBLIC, sorted(PUBLIC - set(shown))


def test_every_page_can_be_found() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", SITE))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    assert listed == pages


def test_the_changelog_knows_the_version() -> None:
    version = re.search(r'^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), flags=re.MULTILINE)
    assert version is not None
    assert version[1] in (ROOT / "CHANGELOG.md").read_text()
