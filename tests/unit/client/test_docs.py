"""The documentation: every example runs, and every name that it mentions is there."""

import re

import pytest

import waltz
from tests.unit.client.examples import EXAMPLES, PAGE, run
from waltz.client.mock import MockDriver

pytestmark = pytest.mark.timeout(90)


def test_the_examples_are_found() -> None:
    assert {"The bank", "An idempotent consumer", "An outbox", "Hierarchical locks"} <= set(EXAMPLES)
    assert "Testing without a cluster" in EXAMPLES


@pytest.mark.parametrize("heading", EXAMPLES)
def test_example(heading: str) -> None:
    run(heading, MockDriver(4))


@pytest.mark.parametrize("page", ["client.md", "migration-from-java.md"])
def test_the_names_are_there(page: str) -> None:
    text = (PAGE.parent / page).read_text()
    for name in set(re.findall(r"\bwaltz\.([A-Za-z_]+)", text)) - {"client", "yml"}:
        assert hasattr(waltz, name), name


def test_everything_that_the_package_offers_is_loaded_on_demand() -> None:
    for name in waltz.__all__:
        assert getattr(waltz, name) is not None
        assert name in dir(waltz)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = waltz.nonsense
