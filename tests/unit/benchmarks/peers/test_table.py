from benchmarks.peers.load import Cost
from benchmarks.peers.table import HEADING, row


def test_a_row_fits_below_the_heading() -> None:
    cost = Cost(appends=2_000, seconds=0.5, p50_s=0.0012, p99_s=0.02, client_cpu_s=0.1, peer_cpu_s=3.0)
    line = row("some", 4096, 16, cost)
    assert line == "| some | 4,096 B | 16 | 4,000 | 1.20 ms | 20.00 ms | 50 µs | 1,500 µs |"
    assert {text.count("|") for text in (*HEADING.splitlines(), line)} == {line.count("|")}
