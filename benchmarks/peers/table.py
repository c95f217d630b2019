"""The table of results, as Markdown."""

from benchmarks.peers.load import Cost

HEADING = (
    "| | Data | In flight | Appends/s | p50 | p99 | CPU per append: client | all processes of the peer |\n"
    "|---|---:|---:|---:|---:|---:|---:|---:|"
)


def row(name: str, size_bytes: int, in_flight: int, cost: Cost) -> str:
    """One line of it."""
    cells = (
        name,
        f"{size_bytes:,} B",
        f"{in_flight}",
        f"{cost.rate:,.0f}",
        f"{cost.p50_s * 1e3:.2f} ms",
        f"{cost.p99_s * 1e3:.2f} ms",
        f"{cost.client_cpu_s / cost.appends * 1e6:,.0f} µs",
        f"{cost.peer_cpu_s / cost.appends * 1e6:,.0f} µs",
    )
    return f"| {' | '.join(cells)} |"
