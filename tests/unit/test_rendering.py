"""The site of the documentation loads no script from elsewhere."""

import importlib.util
import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from types import SimpleNamespace

import pytest

material = pytest.importorskip("material")
exceptions = pytest.importorskip("mkdocs.exceptions")
pytest.importorskip("griffe")

PATH = Path(__file__).parents[2] / "docs" / "rendering.py"
SPEC = importlib.util.spec_from_file_location("rendering", PATH)
assert SPEC is not None
assert SPEC.loader is not None
rendering = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(rendering)

ELSEWHERE = re.compile(r"""["'`]https?://(?:unpkg|[^"'`\s]*\.m?js["'`])""")
"""What a script may load another one from."""


def bundle() -> Path:
    """The script of the theme."""
    (found,) = (Path(material.__path__[0]) / "templates" / "assets" / "javascripts").glob("bundle.*.min.js")
    return found


def test_the_theme_loads_diagrams_from_the_site() -> None:
    before = bundle().read_text("utf-8")
    assert ELSEWHERE.search(before)
    after = rendering.with_own_diagrams(before)
    assert not ELSEWHERE.search(after)
    assert 'new URL("mermaid.min.js"' in after


def test_a_theme_that_loads_them_otherwise_is_noticed() -> None:
    with pytest.raises(exceptions.PluginError, match="names the script of diagrams 0 times"):
        rendering.with_own_diagrams("another theme")


def site(directory: Path) -> SimpleNamespace:
    scripts = directory / "assets" / "javascripts"
    scripts.mkdir(parents=True)
    (scripts / bundle().name).write_bytes(bundle().read_bytes())
    return SimpleNamespace(scripts=scripts, config={"site_dir": str(directory)})


def test_the_script_of_diagrams_is_in_the_site(tmp_path: Path) -> None:
    try:
        distribution("mermaidx")
    except PackageNotFoundError:
        pytest.skip("mermaidx is not installed")
    made = site(tmp_path)
    rendering.on_post_build(made.config)
    assert (made.scripts / "mermaid.min.js").stat().st_size > 1_000_000
    assert "unpkg.com" not in (made.scripts / bundle().name).read_text("utf-8")


def test_another_script_than_the_expected_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mermaidx" / "assets").mkdir(parents=True)
    (tmp_path / "mermaidx" / "assets" / "mermaid.js").write_text("alert('something else')")
    monkeypatch.setattr(rendering, "distribution", lambda _: SimpleNamespace(locate_file=tmp_path.joinpath))
    with pytest.raises(exceptions.PluginError, match="is not mermaid"):
        rendering.on_post_build(site(tmp_path / "site").config)
