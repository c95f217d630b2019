"""``python -m tests.smoke``: the smoke test."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

import uvloop

from tests.smoke.display import Display
from tests.smoke.smoke import Options, Report, Smoke
from waltz.common.errors import WaltzError


def main() -> int:
    """The exit code: 0 if everything agrees, 1 if not (the logs are kept then)."""
    parser = argparse.ArgumentParser(prog="python -m tests.smoke", description=__doc__)
    parser.add_argument("--transactions", type=int, default=50_000, metavar="N")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="of the faults and of the load")
    parser.add_argument("--rate", type=float, default=400, help="transactions begun per second (default: 400)")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument(
        "--sessions", type=int, default=2, metavar="N", help="clients that append within write sessions"
    )
    parser.add_argument("--servers", type=int, default=3)
    parser.add_argument("--storages", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--in-flight", type=int, default=32, help="transactions that each client has under way")
    parser.add_argument("--large", type=int, default=20, metavar="N", help="about so many transactions are large")
    parser.add_argument("--large-bytes", type=int, default=4 << 20, metavar="BYTES", help="how large (default: 4 MiB)")
    parser.add_argument("--directory", type=Path, help="where nodes write (default: a temporary directory)")
    parser.add_argument("--keep", action="store_true", help="keep the logs and the data of a good run, too")
    arguments = vars(parser.parse_args())
    keep = arguments.pop("keep")
    parent = arguments.pop("directory")
    options = Options(**arguments)
    directory = Path(tempfile.mkdtemp(prefix="waltz-smoke-", dir=parent))
    print(f"{options}\nlogs and data in {directory}; {Display.legend()}", flush=True)
    try:
        report = uvloop.run(run(options, directory))
    except (WaltzError, TimeoutError, ExceptionGroup) as error:
        print(f"it cannot be brought to its end: {explain(error)}\nlogs and data are kept in {directory}")
        return 1
    print("\n".join(report.lines()))
    if report.violations:
        print(f"logs and data are kept in {directory}\nagain: python -m tests.smoke --seed {options.seed} ...")
        return 1
    if not keep:
        shutil.rmtree(directory)
    return 0


async def run(options: Options, directory: Path) -> Report:
    """One run."""
    return await Smoke(options, directory).run()


def explain(error: BaseException) -> str:
    """The errors of a group, one by one."""
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(explain(each) for each in error.exceptions)
    return f"{error}" or type(error).__name__


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.exit(code)
