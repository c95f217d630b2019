"""Type checkers accept the examples: mypy as this project has it, and pyright's engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.notebook import NOTEBOOK, code_cells
from tests.unit.client.examples import EXAMPLES, PROGRAMS, TESTS
from tests.unit.reference_examples import as_module

FOLDER = NOTEBOOK.parent


@pytest.fixture
def notebook(tmp_path: Path) -> Path:
    path = tmp_path / "notebook.py"
    path.write_text("\n\n".join(code_cells()[:-1]) + "\n\n" + code_cells()[-1] + "\n")
    return path


def check(*command: str | Path) -> None:
    done = subprocess.run(list(map(str, command)), cwd=FOLDER.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    path = tmp_path / "reference.py"
    path.write_text(as_module())
    return path


@pytest.mark.deep
def test_mypy(notebook: Path, reference: Path) -> None:
    check(sys.executable, "-m", "mypy", "--strict", notebook, reference)


@pytest.mark.deep
def test_pyright(notebook: Path, reference: Path, tmp_path: Path) -> None:
    """Strictly the programs, and as it is by default the documentation, whose programs have no annotations."""
    documented = tmp_path / "documented"
    documented.mkdir()
    for number, source in enumerate([*EXAMPLES.values(), *PROGRAMS.values(), *TESTS.values()]):
        (documented / f"example_{number}.py").write_text(source + "\n")
    programs = [*FOLDER.glob("*.py"), notebook]
    for mode, paths in (("strict", programs), ("standard", [*documented.iterdir(), reference])):
        config = tmp_path / f"{mode}.json"
        config.write_text(json.dumps({"typeCheckingMode": mode, "include": [*map(str, paths)]}))
        checker = Path(sys.executable).with_name("basedpyright")
        check(checker, "--project", config, "--pythonpath", sys.executable, "--level", "error")
