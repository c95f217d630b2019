"""``waltz-view CONFIG.yml``: the view node as a process."""

import sys

from waltz.common.acl.config_problems import access_problems
from waltz.common.config.schemas import ViewConfig
from waltz.common.daemon import run_daemon
from waltz.common.errors import ConfigError
from waltz.common.net.config_files import file_problems
from waltz.common.zk.addresses import address_problems


async def _run(config: ViewConfig) -> None:
    try:
        from waltz.view.daemon import run  # needs the libraries of the extra
    except ImportError as error:
        raise ConfigError(f"a view node needs the package {error.name}: pip install 'waltz-log[view]'") from None
    await run(config)


def main() -> int:
    """Entry point."""
    return run_daemon("waltz-view", ViewConfig, _run, (address_problems, file_problems, access_problems))


if __name__ == "__main__":
    sys.exit(main())
