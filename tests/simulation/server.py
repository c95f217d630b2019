"""``python -m tests.simulation.server``: runs command lines of ``tests.simulation``, each in a process of its own.

That process is forked from this one, which has everything imported. A request is a line of JSON with the path of the
file that takes the output, and the arguments; the answer is a line with the exit code.
"""

import gc
import json
import multiprocessing
import os
import sys
from collections.abc import Sequence

from tests.simulation.__main__ import main

_FORK = multiprocessing.get_context("fork")


def serve() -> None:
    """Answer requests until there are no more."""
    gc.collect()
    gc.freeze()
    gc.disable()  # a process ends sooner than garbage would matter
    for line in sys.stdin:
        process = _FORK.Process(target=_run, args=json.loads(line))
        process.start()
        process.join()
        print(process.exitcode, flush=True)


def _run(output: str, arguments: Sequence[str]) -> None:
    with open(output, "w") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.exit(main(arguments))


if __name__ == "__main__":
    serve()
