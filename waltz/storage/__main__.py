"""``waltz-storage CONFIG.yml``: the storage node as a process."""

import sys

from waltz.common.acl.config_problems import access_problems
from waltz.common.config.schemas import StorageConfig
from waltz.common.daemon import run_daemon
from waltz.common.net.config_files import file_problems
from waltz.common.zk.addresses import address_problems
from waltz.storage.node.node import run


def main() -> int:
    """Entry point."""
    return run_daemon("waltz-storage", StorageConfig, run, (address_problems, file_problems, access_problems))


if __name__ == "__main__":
    sys.exit(main())
