"""``waltz-mirror CONFIG.yml``: the mirror as a process."""

import sys

from waltz.common.config.schemas import MirrorConfig
from waltz.common.daemon import run_daemon
from waltz.common.net.config_files import file_problems
from waltz.mirror.daemon import cluster_problems, run


def main() -> int:
    """Entry point."""
    return run_daemon("waltz-mirror", MirrorConfig, run, (file_problems, cluster_problems))


if __name__ == "__main__":
    sys.exit(main())
