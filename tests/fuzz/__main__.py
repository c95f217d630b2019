"""Coverage-guided fuzzing of the decoders: ``python -m tests.fuzz --target frames --seconds 60``.

Every target runs in a process of its own, under limits of time and memory. What breaks is left as a file, and the
command to run it again is printed. The corpus of one run can be kept with ``--corpus`` and is then built upon.
"""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.targets import TARGETS

GRACE_S = 120
"""How long a process may take to start and to end beside the time it fuzzes."""


class Outcome(NamedTuple):
    """What one target's run came to."""

    target: str
    executions: int
    edges: int
    features: int
    finding: Path | None


def main() -> int:
    """Fuzz one target or all, one after the other; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="coverage-guided fuzzing of the decoders")
    parser.add_argument("--target", choices=["all", *TARGETS], default="all")
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--corpus", type=Path, help="directory that keeps what the runs have learnt")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="directory for what breaks")
    parser.add_argument("--input", type=Path, help="give one file to the target, instead of fuzzing")
    options = parser.parse_args()
    if options.input is not None:
        if options.target == "all":
            parser.error("which target is the input for?")
        TARGETS[options.target].check(options.input.read_bytes())
        return 0
    targets = list(TARGETS) if options.target == "all" else [options.target]
    outcomes = [_run(target, options) for target in targets]
    print(f"{'target':<16}{'executions':>12}{'edges':>8}{'features':>10}  finding")
    for outcome in outcomes:
        finding = outcome.finding or "-"
        print(f"{outcome.target:<16}{outcome.executions:>12,}{outcome.edges:>8,}{outcome.features:>10,}  {finding}")
    return 1 if any(outcome.finding is not None for outcome in outcomes) else 0


def _run(target: str, options: argparse.Namespace) -> Outcome:
    options.findings.mkdir(parents=True, exist_ok=True)
    before = set(options.findings.iterdir())
    with tempfile.TemporaryDirectory(prefix="waltz-fuzz-") as scratch:
        corpus = Path(scratch) if options.corpus is None else options.corpus / target
        corpus.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(TARGETS[target].seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
        command = [sys.executable, "-m", "tests.fuzz.child", target, str(options.seconds), str(corpus)]
        process = subprocess.run(
            [*command, str(options.findings)],
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            timeout=options.seconds + GRACE_S,
        )
    outcome = _outcome(target, process.stderr, set(options.findings.iterdir()) - before)
    if process.returncode != 0 or outcome.finding is not None:
        print(process.stderr[-4000:], file=sys.stderr)
        if outcome.finding is None:
            raise SystemExit(f"{target} could not be fuzzed (exit code {process.returncode})")
        print(f"again: python -m tests.fuzz --target {target} --input {outcome.finding}", file=sys.stderr)
    return outcome


def _outcome(target: str, log: str, found: set[Path]) -> Outcome:
    executions, edges, features = (
        max(map(int, re.findall(pattern, log, re.MULTILINE)), default=0)
        for pattern in (r"^#(\d+)\s", r"\bcov: (\d+)", r"\bft: (\d+)")
    )
    return Outcome(target, executions, edges, features, min(found, default=None))


if __name__ == "__main__":
    sys.exit(main())
