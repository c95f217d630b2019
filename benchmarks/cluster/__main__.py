"""``python -m benchmarks.cluster``: measure a cluster, compare results, draw them."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from benchmarks.cluster import plots, scenarios
from benchmarks.cluster.comparison import differences, measured_by, missing, rows
from benchmarks.cluster.page import PageError, filled
from benchmarks.cluster.processes import can_count_system_calls
from benchmarks.cluster.report import OTHER, WALTZ, Report, ReportError, from_json, to_json
from benchmarks.cluster.runner import ContestantFailedError, Settings, run
from benchmarks.cluster.scenarios import Scenario
from benchmarks.cluster.summary import P50, P50_RATIO, P99, RATE, SHARE
from benchmarks.cluster.tables import ROLES, markdown, tables
from waltz.common.errors import WaltzError

COMPARED = (
    *(RATE, SHARE, P50, P99, P50_RATIO, "tip_p50_ms"),
    *(f"{what}.{role}" for what in ("cpu_us", "switches_per_batch", "calls_per_batch") for role in ROLES),
)
INTERRUPTED = 130
HEADER = ("", "metric", "before", "after", "difference", "beyond the spread")
DIMENSIONS = ("in_flight", "rates", "sizes_bytes", "partitions", "locks", "transports", "faces", "journals")


def main() -> int:
    """The exit code: 1 if something failed."""
    options = parser().parse_args()
    try:
        if options.compare is not None:
            before, after = (from_json(path.read_text()) for path in options.compare)
            print(compared(before, after, WALTZ, WALTZ))
        elif options.show is not None:
            print(shown(from_json(options.show.read_text())))
        elif options.draw is not None:
            publish(from_json(options.draw.read_text()), options.page)
        else:
            return measure(options)
    except (ReportError, PageError, WaltzError, ContestantFailedError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def measure(options: argparse.Namespace) -> int:
    """Run, print, and write what is asked for."""
    if options.count_calls and not can_count_system_calls():
        parser().error("--calls needs strace")
    settings = Settings(**{name: getattr(options, name) for name in Settings._fields})
    last: list[Report] = []

    def save(report: Report) -> None:
        last[:] = [report]
        if options.json is not None:
            options.json.write_text(to_json(report))

    failed = uvloop.run(run(chosen(options), settings, save))
    for report in last:
        print(shown(report))
        if OTHER in report.contestants:
            print(f"\n## {OTHER} (before) and {WALTZ} (after)\n\n{compared(report, report, OTHER, WALTZ)}")
    for scenario in failed:
        print(f"FAILED: {scenario.label}", file=sys.stderr)
    return bool(failed)


def chosen(options: argparse.Namespace) -> list[Scenario]:
    """The sets that are named, and every combination of what is given one by one."""
    given = {name: getattr(options, name) for name in DIMENSIONS if getattr(options, name) is not None}
    if given and not {"in_flight", "rates"} & given.keys():
        given["in_flight"] = [256]
    known = scenarios.sets(options.log_length)
    names: Sequence[str] = options.sets or ([] if given else ["quick"])
    return [each for name in names for each in known[name]()] + (scenarios.product(**given) if given else [])


def shown(report: Report) -> str:
    """A report to be read."""
    lines = [f"{name}: {what}" for name, what in (report.machine | report.contestants).items()]
    return "\n".join(lines) + "".join(f"\n\n## {title}\n\n{table}" for title, table in tables(report).items())


def compared(before: Report, after: Report, old: str, new: str) -> str:
    """A table of differences."""
    earlier, later = measured_by(before, old), measured_by(after, new)
    table = markdown(HEADER, rows(differences(earlier, later, COMPARED)))
    return "\n".join([table, *(f"only in one of them: {each.label}" for each in missing(earlier, later))])


def publish(report: Report, page: Path) -> None:
    """Draw plots and fill the page."""
    pictures = plots.draw(report, page.parent / "images")
    names = [str(path.relative_to(page.parent)) for path in pictures]
    page.write_text(filled(page.read_text(), report, names))


def parser() -> argparse.ArgumentParser:
    """What may be asked for."""
    made = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=__doc__)
    made.add_argument(
        "sets", nargs="*", type=_set, metavar="SET", help=f"of {', '.join(scenarios.sets())} (default: quick)"
    )
    what = made.add_argument_group("one by one", "every combination of these, instead of a set or beside it")
    what.add_argument("--in-flight", type=int, nargs="+", metavar="N", help="closed loops")
    what.add_argument("--rate", type=int, nargs="+", dest="rates", metavar="PER_S", help="open loops")
    what.add_argument("--size", type=int, nargs="+", dest="sizes_bytes", metavar="BYTES")
    what.add_argument("--partitions", type=int, nargs="+", metavar="N")
    what.add_argument("--locks", type=_locks, nargs="+", metavar="WRITE+READ", help="such as 1+0 2+1")
    what.add_argument("--transport", type=_transport, nargs="+", dest="transports", metavar="plain|tls")
    what.add_argument("--journal", type=_on, nargs="+", dest="journals", metavar="off|on", help="of storages of Waltz")
    what.add_argument("--face", nargs="+", dest="faces", choices=[scenarios.CALLBACKS, scenarios.AWAIT])
    how = made.add_argument_group("how")
    how.add_argument("--starts", type=int, default=1, help="how often all nodes are started anew (default: 1)")
    how.add_argument("--rounds", type=int, default=3, help="after each start (default: 3)")
    how.add_argument("--seconds", type=float, default=1.5, help="that a round takes (default: 1.5)")
    how.add_argument("--log-length", type=int, default=scenarios.LOG_LENGTH, metavar="N", help="end of that curve")
    how.add_argument(
        "--calls", dest="count_calls", action="store_true", help="count system calls with strace, in a round for itself"
    )
    how.add_argument("--no-lean", action="store_false", dest="lean", help="without the lean pipeline")
    how.add_argument("--tree", type=_tree, metavar="PATH", help="another checkout, measured in turn with this one")
    how.add_argument("--directory", type=Path, help="where nodes write (default: a temporary directory)")
    results = made.add_argument_group("results")
    results.add_argument("--json", type=Path, metavar="FILE", help="write the results, also while it runs")
    results.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"), help="instead of measuring")
    results.add_argument("--show", type=Path, metavar="FILE", help="tables, instead of measuring")
    results.add_argument("--draw", type=Path, metavar="FILE", help="into the page, instead of measuring")
    results.add_argument(
        "--page", type=Path, default=Path("docs/appendix/benchmark-results.md"), help="(default: %(default)s)"
    )
    return made


def _set(text: str) -> str:
    if text not in scenarios.sets():
        raise argparse.ArgumentTypeError(f"{text} is none of {', '.join(scenarios.sets())}")
    return text


def _locks(text: str) -> tuple[int, int]:
    write, _, read = text.partition("+")
    return int(write), int(read or 0)


def _transport(text: str) -> bool:
    if text not in ("plain", "tls"):
        raise argparse.ArgumentTypeError(f"{text} is neither plain nor tls")
    return text == "tls"


def _on(text: str) -> bool:
    if text not in ("off", "on"):
        raise argparse.ArgumentTypeError(f"{text} is neither off nor on")
    return text == "on"


def _tree(text: str) -> Path:
    path = Path(text).resolve()
    if not (path / "waltz").is_dir():
        raise argparse.ArgumentTypeError(f"{path} is no checkout of Waltz")
    return path


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
