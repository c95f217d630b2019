"""Levels of consistency beside the table of the specification, written down once more."""

import pytest

from tests.consistency_table import ACCEPTED, ACCEPTED_READS, BELOW_QUORUM, FRESH, WORDS
from waltz.common.consistency import (
    Consistency,
    accepts,
    accepts_read,
    consistency_named,
    level_from_commit,
    level_of_append,
    level_without_choice,
    reads_everything,
    storages_before_commit,
    waits_for_all,
)


def test_names_and_numbers() -> None:
    assert {level.word: int(level) for level in Consistency} == {word: 1 + index for index, word in enumerate(WORDS)}
    for word in WORDS:
        assert consistency_named(word).word == word
    with pytest.raises(ValueError, match="'most' is no level of consistency; there are leader, leader_plus_one,"):
        consistency_named("most")


@pytest.mark.parametrize("demanded", WORDS)
@pytest.mark.parametrize("level", WORDS)
def test_all_64_pairs(demanded: str, level: str) -> None:
    expected = level in ACCEPTED[demanded]
    assert accepts(consistency_named(demanded), consistency_named(level)) is expected
    expected = level in ACCEPTED_READS[demanded]
    assert accepts_read(consistency_named(demanded), consistency_named(level)) is expected


def test_levels_of_reads() -> None:
    assert {level.word for level in Consistency if reads_everything(level)} == FRESH


@pytest.mark.parametrize("demanded", WORDS)
def test_who_chooses_no_level_is_not_refused_for_it(demanded: str) -> None:
    level = level_without_choice(consistency_named(demanded))
    assert accepts(consistency_named(demanded), level)
    assert level.word not in BELOW_QUORUM


def test_levels_that_wait_for_all_storages() -> None:
    assert [level.word for level in Consistency if waits_for_all(level)] == ["leader_all", "write_all_read_one"]


def test_storages_of_levels_below_the_quorum() -> None:
    needed = {level.word: count for level in Consistency if (count := storages_before_commit(level)) is not None}
    assert needed == {"leader": 1, "leader_plus_one": 2, "write_one_read_all": 1, "none": 1}
    assert needed.keys() == set(BELOW_QUORUM)


def test_levels_of_appends() -> None:
    for word in WORDS:
        assert level_of_append(word).word == word
        if word in BELOW_QUORUM:
            with pytest.raises(ValueError, match=f"^{word} is not possible here: .* taken back"):
                level_from_commit(word)
        else:
            assert level_from_commit(word).word == word
    with pytest.raises(ValueError, match="'' is no level"):
        level_of_append("")
    with pytest.raises(TypeError, match="must be the name of a level, for example 'leader_all', not 4"):
        level_of_append(4)
