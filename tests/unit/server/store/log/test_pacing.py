from waltz.server.store.log.pacing import MAX_INTERVAL_S, ReadmissionPacer, Readmissions


def test_the_first_time_is_at_once_and_then_less_and_less_often() -> None:
    pacer = ReadmissionPacer(10.0)
    admitted = [now_s for now_s in range(4 * 3600) if pacer.admit(float(now_s))]
    assert admitted[:6] == [0, 10, 30, 70, 150, 310]
    assert admitted[-1] - admitted[-2] == MAX_INTERVAL_S


def test_every_storage_has_a_pace_of_its_own_until_it_has_joined_or_is_not_assigned_any_more() -> None:
    readmissions = Readmissions(10.0)
    assert readmissions.admit("a:1", 0.0)
    assert readmissions.admit("b:1", 1.0)
    assert not readmissions.admit("a:1", 9.0)
    readmissions.joined("a:1")
    assert readmissions.admit("a:1", 9.0)
    readmissions.keep({"a:1"})
    assert not readmissions.admit("a:1", 10.0)
    assert readmissions.admit("b:1", 10.0)
    readmissions.joined("c:1")
