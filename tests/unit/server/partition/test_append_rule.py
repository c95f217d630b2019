"""What properties say about appends."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.consistency_table import ACCEPTED, WORDS
from waltz.common.consistency import consistency_named
from waltz.common.retention import Retention
from waltz.server.partition.append_rule import DEFAULT_RULE, AppendRule, append_rule
from waltz.table.properties import PartitionProperties


@given(st.booleans(), st.sampled_from(WORDS), st.booleans(), st.booleans())
def test_what_the_tool_writes_is_understood(disabled: bool, word: str, required: bool, refuses: bool) -> None:
    properties = PartitionProperties.model_validate(
        {"disabled": disabled, "consistency": word, "requireConsistency": required, "refuseLegacyWriters": refuses}
    )
    rule = AppendRule(disabled, consistency_named(word), required, refuses)
    assert append_rule(properties.model_dump(by_alias=True)) == rule
    assert append_rule({**properties.model_dump(by_alias=True, exclude_defaults=True), "change": 1}) == rule
    assert rule.describe() == (
        f"consistency={word} requireConsistency={'true' if required else 'false'}"
        f" refuseLegacyWriters={'true' if refuses else 'false'}"
    )


@pytest.mark.parametrize(
    "properties",
    [
        None,
        [],
        "leader",
        {"disabled": 1},
        {"consistency": None},
        {"consistency": ["none"]},
        {"retentionAgeInMillis": -1},
    ],
)
def test_anything_else_is_refused(properties: object) -> None:
    with pytest.raises(ValueError):
        append_rule(properties)
    assert append_rule({}) == DEFAULT_RULE


def test_the_retention_is_that_of_the_tool() -> None:
    properties = PartitionProperties(retention_age_ms=86_400_000, retention_size_bytes=1 << 40)
    assert append_rule(properties.model_dump(by_alias=True)).retention == Retention(86_400_000, 1 << 40)


@pytest.mark.parametrize("demanded", WORDS)
def test_refusals(demanded: str) -> None:
    rule = append_rule({"consistency": demanded})
    for word in WORDS:
        refusal = rule.refusal(consistency_named(word))
        assert (refusal is None) is (word in ACCEPTED[demanded])
        if refusal is not None:
            assert refusal == f"the partition demands the consistency {demanded}, and the append has {word}"
        assert rule._replace(required=False).refusal(consistency_named(word)) is None
    assert rule.refusal(None) is None, "writers whose protocol has no levels are refused on demand only"
    strict = rule._replace(refuses_legacy=True)
    assert (strict.refusal(None) is None) is ("leader_quorum" in ACCEPTED[demanded])
    assert strict._replace(required=False).refusal(None) is None
