"""``waltz-server CONFIG.yml``: the server as a process."""

import functools
import sys

from waltz.common.acl.config_problems import access_problems
from waltz.common.config.schemas import ServerConfig
from waltz.common.daemon import run_daemon
from waltz.common.net.config_files import file_problems
from waltz.common.zk.addresses import address_problems
from waltz.server.process.node import run
from waltz.serving.console import ServerConsole
from waltz.serving.retention import RetentionKeeper


def main() -> int:
    """Entry point."""
    return run_daemon(
        "waltz-server",
        ServerConfig,
        functools.partial(run, make_console=ServerConsole, make_keeper=RetentionKeeper),
        (address_problems, file_problems, access_problems),
    )


if __name__ == "__main__":
    sys.exit(main())
