"""The words for the states of a replica, and where the runbook explains what to do."""

import re
from pathlib import Path

from waltz.common.replica_states import REMEDIES, RUNBOOK, Remedy, ReplicaStatus

PAGE = Path(__file__).parents[3] / RUNBOOK


def sections() -> set[str]:
    """The anchors of the runbook."""
    return set(re.findall(r"\{#([a-z-]+)\}", PAGE.read_text()))


def test_values_are_lower_case_words() -> None:
    assert [status.value for status in ReplicaStatus] == [status.name.lower() for status in ReplicaStatus]


def test_every_state_but_the_good_one_has_a_remedy_that_the_runbook_explains() -> None:
    assert set(REMEDIES) == set(ReplicaStatus) - {ReplicaStatus.CURRENT}
    assert {remedy.section for remedy in REMEDIES.values()} <= sections()
    assert str(Remedy("start it", "storage-down")) == "start it (docs/runbook.md#storage-down)"
