"""What the smoke test reports."""

from array import array

from tests.smoke.faults import Fault, Kind
from tests.smoke.journal import Journal, Sample
from tests.smoke.smoke import Report

STARTED_AT_S = 1000.0


def test_a_long_pause_is_told_with_the_faults_that_overlapped_with_it() -> None:
    journal = Journal(1, applied=[array("Q"), array("Q")])
    for partition_id, applied_at_s in ((0, 5.0), (0, 36.0), (0, 37.0), (1, 5.0), (1, 7.0)):
        journal.samples.append(Sample(partition_id, 0.0, STARTED_AT_S + applied_at_s))
    before = Fault(1.0, "server-1", Kind.PAUSE, 2.0)
    during = [Fault(4.5, "server-2", Kind.BLACKHOLE, 0.0), Fault(20.0, "storage-1", Kind.KILL, 1.0)]
    after = Fault(36.5, "server-1", Kind.KILL, 1.0)
    lines = list(Report([], [journal], [before, *during, after], 40.0, STARTED_AT_S).lines())
    (told,) = (number for number, line in enumerate(lines) if "longest pause of partition 0" in line)
    assert lines[told].endswith("31.0 s, from 5.0 s on")
    assert lines[told + 1 : told + 3] == [f"    {fault}" for fault in during]
    assert lines[told + 3].endswith("2.0 s, from 5.0 s on")
    assert len(lines) == told + 4
