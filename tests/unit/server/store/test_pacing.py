from waltz.server.store.pacing import MAX_INTERVAL_S, ReadmissionPacer


def test_the_first_time_is_at_once_and_then_less_and_less_often() -> None:
    pacer = ReadmissionPacer(10.0)
    admitted = [now_s for now_s in range(4 * 3600) if pacer.admit(float(now_s))]
    assert admitted[:6] == [0, 10, 30, 70, 150, 310]
    assert admitted[-1] - admitted[-2] == MAX_INTERVAL_S
