"""What the log has in hand, by runs."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.server.fakes import append, new_link
from waltz.server.partition.undecided import UndecidedAppends
from waltz.server.requests.appends import AcceptedRun, AppendCall
from waltz.server.store.interface import record_bytes_of


def accepted(sizes: list[int], undecided: UndecidedAppends) -> list[AppendCall]:
    """Runs of these sizes, each append with as many locks as its run is long."""
    appends: list[AppendCall] = []
    link = new_link()
    for size in sizes:
        run = AcceptedRun(link, len(appends) + size - 1, size, float(len(appends)), size * size)
        for _ in range(size):
            call = append(len(appends))
            call.transaction_id, call.run = len(appends), run
            appends.append(call)
        undecided.accept(run, record_bytes_of(appends[-size:]))
    return appends


@given(st.lists(st.integers(1, 5), min_size=1, max_size=10), st.sets(st.integers(1, 49)))
def test_each_run_ends_once_when_its_last_append_is_committed(sizes: list[int], cuts: set[int]) -> None:
    undecided = UndecidedAppends()
    appends = accepted(sizes, undecided)
    whole_bytes = undecided.size_bytes
    assert undecided.count == len(appends)
    ended: list[AcceptedRun] = []
    for start, end in pairwise([0, *sorted(cut for cut in cuts if cut < len(appends)), len(appends)]):
        batch = appends[start:end]
        runs = list(undecided.commit(batch, record_bytes_of(batch)))
        assert runs == [call.run for call in batch if call.transaction_id == call.run.last_id]
        ended += runs
        assert undecided.count == len(appends) - end
        assert undecided.size_bytes < whole_bytes
    assert [run.size for run in ended] == sizes
    assert undecided.size_bytes == 0


def test_what_a_session_leaves_behind_is_decided_one_way_or_another() -> None:
    undecided = UndecidedAppends()
    appends = accepted([3, 2], undecided)
    assert [run.size for run in undecided.commit(appends[:4], record_bytes_of(appends[:4]))] == [3]
    undecided.subtract(appends[4:])
    assert undecided.count == 0
    undecided.clear()
    assert undecided.size_bytes == 0
