"""One target in a process of its own: ``python -m tests.fuzz.child TARGET SECONDS CORPUS FINDINGS``.

libFuzzer counts, mutates, writes down what breaks, and ends the process. This module imports nothing of the decoders
before their instrumentation has begun.
"""

import logging
import resource
import sys
from pathlib import Path

import atheris

INPUT_TIMEOUT_S = 60
"""An input that takes longer is a hang; far longer than any takes, since the machine may be busy with other things."""

MEMORY_LIMIT_BYTES = 256 << 20
"""Address space of the process beyond what it has when fuzzing begins: no input needs so much."""


def main(target_name: str, seconds: str, corpus: str, findings: str) -> None:
    """Fuzz until the time is over or something breaks; does not return."""
    with atheris.instrument_imports(include=["waltz", "yaml"]):
        from tests.fuzz.targets import TARGETS
    logging.disable(logging.CRITICAL)  # decoders of files report every damage that they meet
    target = TARGETS[target_name]
    arguments = [
        f"-max_total_time={seconds}",
        f"-max_len={target.max_input_bytes}",
        f"-timeout={INPUT_TIMEOUT_S}",
        f"-report_slow_units={INPUT_TIMEOUT_S}",
        f"-artifact_prefix={findings}/{target_name}-",
        corpus,
    ]
    atheris.Setup([sys.argv[0], *arguments], target.check)
    for seed in target.seeds():
        target.check(seed)  # so that what is loaded on demand is loaded before memory is limited
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit_bytes = pages * resource.getpagesize() + MEMORY_LIMIT_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, limit_bytes))
    atheris.Fuzz()


if __name__ == "__main__":
    main(*sys.argv[1:])
