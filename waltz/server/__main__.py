"""``waltz-server CONFIG.yml``: the server as a process."""

import sys

from waltz.common.config import ServerConfig
from waltz.common.daemon import run_daemon
from waltz.server.node import run


def main() -> int:
    """Entry point."""
    return run_daemon("waltz-server", ServerConfig, run)


if __name__ == "__main__":
    sys.exit(main())
