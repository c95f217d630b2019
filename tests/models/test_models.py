"""The specifications hold at their small sizes, and each mistake that shows there gives a counterexample.

``python -m tests.models`` checks the larger sizes, and the other mistakes.
"""

import pytest

from tests.models.checker import MODELS, MODELS_TO_CHECK, Model, Plant, check

pytestmark = [pytest.mark.deep, pytest.mark.timeout(900)]


@pytest.mark.parametrize("model", MODELS_TO_CHECK, ids=lambda model: model.name)
def test_the_specification_holds(model: Model) -> None:
    outcome = check(model, model.small)
    assert outcome.violated is None, outcome.output
    assert outcome.distinct_states > 1000


@pytest.mark.parametrize(
    ("model", "plant"),
    [
        pytest.param(model, plant, id=plant.bug)
        for model in MODELS_TO_CHECK
        for plant in model.plants
        if plant.constants == model.small
    ],
)
def test_a_mistake_gives_a_counterexample(model: Model, plant: Plant) -> None:
    outcome = check(model, plant.constants, plant.bug)
    assert outcome.violated == model.invariant, outcome.output


@pytest.mark.parametrize("model", MODELS_TO_CHECK, ids=lambda model: model.name)
def test_no_mistake_of_a_specification_is_left_out(model: Model) -> None:
    text = (MODELS / f"{model.name}.tla").read_text()
    named = {part.split('"')[1] for part in text.split("Bug ")[1:] if part[:3] in ('= "', '# "')}
    assert named == {plant.bug for plant in model.plants}
