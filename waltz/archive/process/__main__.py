"""``waltz-archive CONFIG.yml``: the archiver as a process."""

import sys

from waltz.archive.process.daemon import run
from waltz.common.acl.config_problems import access_problems
from waltz.common.config.schemas import ArchiveConfig
from waltz.common.daemon import run_daemon
from waltz.common.net.config_files import file_problems
from waltz.common.zk.addresses import address_problems


def main() -> int:
    """Entry point."""
    return run_daemon("waltz-archive", ArchiveConfig, run, (address_problems, file_problems, access_problems))


if __name__ == "__main__":
    sys.exit(main())
