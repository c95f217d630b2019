"""Where databases that sync every change do not wait for a disk."""

import os
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")


def quick_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory in memory where the system has one. For a few small files, as that memory may be little."""
    return tempfile.TemporaryDirectory(dir=_MEMORY if os.access(_MEMORY, os.W_OK) else None)
