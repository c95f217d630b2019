"""``waltz-server CONFIG.yml``: the server as a process."""

import sys

from waltz.common.config.schemas import ServerConfig
from waltz.common.daemon import run_daemon
from waltz.common.net.config_files import file_problems
from waltz.common.zk.addresses import address_problems
from waltz.server.process.node import run


def main() -> int:
    """Entry point."""
    return run_daemon("waltz-server", ServerConfig, run, (address_problems, file_problems))


if __name__ == "__main__":
    sys.exit(main())
