"""The check of a node's settings of access rules, without a start."""

from pydantic import BaseModel

from waltz.common.config.schemas import ArchiveConfig, CliConfig, ServerConfig, StorageConfig, ViewConfig
from waltz.common.errors import ConfigError


def access_problems(config: BaseModel, source: str) -> list[str]:
    """What the start of a node with access rules would find wrong; ``source`` is the name of the configuration."""
    nodes = ServerConfig | StorageConfig | ArchiveConfig | ViewConfig | CliConfig
    if not isinstance(config, nodes) or not config.acl.enabled:
        return []
    from waltz.common.acl.node import check_access  # only nodes with rules need them

    try:
        check_access(config.acl)
    except ConfigError as error:
        return [f"{source}: {error}"]
    return []
