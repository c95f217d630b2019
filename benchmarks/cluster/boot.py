"""Starting modules of this package in other processes, with the Waltz of this checkout or of another one.

What they take from the client library they import from ``waltz`` itself: its modules have other places in other trees.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""The checkout that the benchmark belongs to."""

_BOOT = """
import os, runpy, sys
here, tree, module = sys.argv[1:4]
sys.path.insert(0, here)
import benchmarks
sys.path[0] = tree
os.chdir(tree)
sys.argv = [module, *sys.argv[4:]]
runpy.run_module(module, run_name="__main__")
"""
"""``benchmarks`` comes from here, ``waltz`` from the tree: for this process by its path, and for nodes that it starts
with ``python -m`` by its directory."""


def python_of(tree: Path) -> str:
    """The interpreter of a checkout: that of its virtual environment if it has one."""
    own = tree / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def command(module: str, *arguments: str, tree: Path = ROOT) -> list[str]:
    """How ``benchmarks.cluster.<module>`` is started with the Waltz in ``tree``."""
    return [python_of(tree), "-c", _BOOT, str(ROOT), str(tree), f"benchmarks.cluster.{module}", *arguments]
