"""The notebook, cell by cell, as its kernel runs it."""

import json

import pytest

from tests.examples.notebook import NOTEBOOK, code_cells


def test_it_runs_from_the_first_cell_to_the_last(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WALTZ_CONFIG", raising=False)
    names: dict[str, object] = {"__name__": "__main__"}
    for number, cell in enumerate(code_cells()):
        exec(compile(cell, f"cell {number}", "exec"), names)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith("has 4 partitions")
    first, second = printed[1].split()
    assert first.isdigit()
    assert second == "None", "it was decided once"
    totals = names["totals"]
    assert isinstance(totals, dict)
    assert sum(totals.values()) == sum(range(100))


def test_it_is_stored_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    assert [cell for cell in cells if cell.get("outputs") or cell.get("execution_count")] == []
