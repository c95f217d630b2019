"""A PostgreSQL server for tests, from Debian's package; as root it runs as somebody else, for it refuses root."""

import os
import pwd
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOTS = (Path("/usr/lib/postgresql"), Path("/usr/local/pgsql"))
_START_TIMEOUT_S = 60.0
_END_TIMEOUT_S = 60.0


def find_postgres() -> Path | None:
    """The directory of the newest server's programs."""
    found = [path.parent for root in _ROOTS for path in (*root.glob("*/bin/postgres"), *root.glob("bin/postgres"))]
    if not found and (program := shutil.which("postgres")):
        found = [Path(program).parent]
    return max(found, key=lambda path: [int(part) for part in path.parts if part.isdigit()], default=None)


def _other_user() -> str | None:
    if os.getuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            pwd.getpwnam(name)
        except KeyError:
            continue
        return name
    return None


class PostgresServer:
    """Runs while the context is entered, and listens on a socket in its directory.

    That is none of pytest's, whose parent every run of pytest closes to other users.
    """

    def __init__(self, binaries: Path) -> None:
        self._binaries = binaries
        self._temporary = tempfile.TemporaryDirectory(prefix="waltz-postgres-")
        self._directory = Path(self._temporary.name)
        self._data = self._directory / "data"
        self._user = _other_user()
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self._directory / "log"
        if self._user is not None:
            shutil.chown(self._directory, self._user)

    @property
    def connect_string(self) -> str:
        """For psycopg."""
        return f"host={self._directory} user=waltz dbname=postgres"

    def __enter__(self) -> Self:
        self._run("initdb", "-D", str(self._data), "-U", "waltz", "--auth=trust", "--no-sync")
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                [
                    str(self._binaries / "postgres"),
                    *("-D", str(self._data), "-F", "-h", "", "-k", str(self._directory)),
                ],
                user=self._user,
                stdout=log,
                stderr=log,
                cwd="/",
            )
        deadline_s = time.monotonic() + _START_TIMEOUT_S
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline_s:
                text = self._log.read_text()
                self.__exit__(None, None, None)
                raise AssertionError(f"PostgreSQL did not start:\n{text}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_END_TIMEOUT_S)
        self._temporary.cleanup()

    def _answers(self) -> bool:
        done = subprocess.run([str(self._binaries / "pg_isready"), "-q", "-h", str(self._directory)], check=False)
        return done.returncode == 0

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._binaries / program), *arguments], user=self._user, cwd="/", capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr.decode()
