"""Results on the page."""

from pathlib import Path

import pytest

from benchmarks.cluster.page import BEGIN, END, PageError, filled, for_the_page
from benchmarks.cluster.report import WALTZ, Report, Result
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import RATE

MACHINE = {"when": "today", "cpu": "2 x fast", "kernel": "6", "python": "3", "load": "0"}
SETTINGS: dict[str, float] = {"starts": 1, "rounds": 3, "seconds": 1.5}
REPORT = Report(MACHINE, SETTINGS, {WALTZ: ""}, [Result(Scenario(), {WALTZ: [{RATE: 4711}]})])


def test_results_take_the_place_of_those_before() -> None:
    page = filled(f"above\n{BEGIN}\nold\n{END}\nbelow\n", REPORT, ["images/x.png"])
    assert page.startswith(f"above\n{BEGIN}\n")
    assert page.endswith(f"{END}\nbelow\n")
    assert "old" not in page
    assert "4,711" in page
    assert "(images/x.png)" in page
    assert filled(page, REPORT, ["images/x.png"]) == page


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}{BEGIN}"])
def test_a_page_without_a_place_is_left_alone(page: str) -> None:
    with pytest.raises(PageError):
        filled(page, REPORT, [])


def test_the_page_of_the_project_has_a_place() -> None:
    page = Path(__file__).parents[4] / "docs" / "appendix" / "benchmark-results.md"
    assert "4,711" in filled(page.read_text(), REPORT, [])


def test_what_is_for_maintainers_is_not_on_the_page() -> None:
    table = "|  | transactions/s | lean | lag |\n| --- | ---: | ---: | ---: |\n| plain | 4,711 (4,712.5) | 1 | 0 |"
    assert for_the_page(table) == "|  | transactions/s |\n| --- | ---: |\n| plain | 4,711 |"
