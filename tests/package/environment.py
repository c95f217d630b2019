"""An environment into which nothing but the package is installed, used from outside of the checkout."""

import os
import subprocess
import sys
import venv
from pathlib import Path

from waltz.common.errors import WaltzError

_LEFT_OUT = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "WALTZ_ZOOKEEPER_JARS")
TIMEOUT_S = 600.0


class Environment:
    """A fresh virtual environment without even pip; commands run in a directory of its own beside it.

    What is installed in the environment ``below`` is there as well.
    """

    def __init__(self, directory: Path, name: str, *, below: "Environment | None" = None) -> None:
        self.name = name
        self.programs = directory / name / "bin"
        self.directory = directory / f"{name}-work"
        self.directory.mkdir()
        venv.create(directory / name, symlinks=True)
        if below is not None:
            (self._packages / "below.pth").write_text(f"import site; site.addsitedir({str(below._packages)!r})\n")

    @property
    def _packages(self) -> Path:
        (found,) = self.programs.parent.glob("lib/python*/site-packages")
        return found

    def pip(self, *arguments: str, cwd: Path | None = None) -> None:
        """Run pip, which belongs to the environment of the tests, on this one."""
        command = [sys.executable, "-m", "pip", "--python", str(self.programs / "python"), *arguments]
        self._checked(command, cwd or self.directory)

    def run(self, program: str, *arguments: str, **variables: str) -> str:
        """Run a program of the environment; what it printed. Raises :class:`WaltzError` when it fails."""
        return self._checked([str(self.programs / program), *arguments], self.directory, **variables)

    def refused(self, program: str, *arguments: str, **variables: str) -> str:
        """Run a program that has to fail with one line of text, which is returned."""
        result = self._run([str(self.programs / program), *arguments], self.directory, **variables)
        text = result.stderr.strip()
        if result.returncode != 1 or result.stdout or "\n" in text or not text:
            raise WaltzError(f"{self._told(program, *arguments)} does not fail in one line: {result}")
        return text

    def _checked(self, command: list[str], cwd: Path, **variables: str) -> str:
        result = self._run(command, cwd, **variables)
        if result.returncode != 0:
            raise WaltzError(f"{self._told(*command)} failed ({result.returncode}):\n{result.stdout}{result.stderr}")
        return result.stdout

    def _run(self, command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
        surroundings = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT}
        return subprocess.run(
            command,
            cwd=cwd,
            env=surroundings | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def _told(self, *command: str) -> str:
        return f"in the environment {self.name}: {' '.join(command)}"
