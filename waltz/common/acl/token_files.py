"""The files with the keys of tokens and with the withdrawn tokens, followed while a node runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from waltz.common.acl.tokens import Tokens, read_algorithms, read_keys, read_withdrawn
from waltz.common.config.schemas import AclConfig
from waltz.common.errors import ConfigError
from waltz.common.net.followed_files import FollowedFiles

MAX_FILE_BYTES: Final = 16 << 20


class TokenFiles:
    """What a node knows about tokens, by its files as they are now, or as they were when they could be used last."""

    def __init__(self, config: AclConfig, cluster_key: str) -> None:
        """``config`` has a file with keys. Raises ``ConfigError``."""
        self._config = config
        self._cluster_key = cluster_key
        self._algorithms = read_algorithms(config.token_algorithms)
        paths = [path for path in (config.token_keys, config.withdrawn_tokens) if path is not None]
        self._files = FollowedFiles(self._read, paths, what="tokens", held="the former keys and withdrawals hold on")

    @property
    def tokens(self) -> Tokens:
        """What verifies tokens at present."""
        return self._files.present

    @property
    def problem(self) -> str | None:
        """Why the files as they are now cannot be used; ``None`` if they are."""
        return self._files.problem

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Check the files regularly, until cancelled."""
        await self._files.follow(on_change)

    def _read(self) -> Tokens:
        config = self._config
        assert config.token_keys is not None
        withdrawn = None
        if config.withdrawn_tokens is not None:
            withdrawn = read_withdrawn(_content(config.withdrawn_tokens), config.withdrawn_tokens)
        keys = read_keys(_content(config.token_keys), self._algorithms, config.token_keys)
        return Tokens(keys, withdrawn, self._cluster_key, config.token_leeway_ms / 1000)


def _content(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ConfigError(f"{path} has more than {MAX_FILE_BYTES >> 20} MiB")
        return content.decode()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is no text") from None
