"""The object store: a local directory, or the store of Amazon (S3), Google or Azure; one address names any of them.

The interface is narrow, so tests can replace the store by a failing one. Credentials come from environment variables
and the identity of the machine, as for the tools of each store, never from the address.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from waltz.archive.errors import ArchiveError, NotFoundInStoreError, StoreUnavailableError
from waltz.common.errors import ConfigError
from waltz.common.version import with_extra

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Obstore

SCHEMES = ("file", "s3", "gs", "az", "abfs", "abfss")

SECRETS = re.compile(r"key|secret|token|password|sas|credential", re.IGNORECASE)
"""Matches names of settings that must not be part of an address: addresses appear in logs and in output."""

_RETRIES: dict[str, Any] = {"max_retries": 2}
"""Retries of one request by the library. Callers deal with longer outages."""


class ObjectStore(Protocol):
    """The store as the archive uses it. Every method raises ``StoreUnavailableError`` when the store fails."""

    url: str
    """The address for messages, without settings."""

    async def create(self, path: str, data: bytes) -> bool:
        """Write an object unless one of this name exists. Atomic and durable.

        Returns:
            Whether the object was written.
        """

    async def put(self, path: str, data: bytes) -> None:
        """Write an object, replacing an older one of this name. Atomic and durable."""

    async def get(self, path: str) -> bytes:
        """Read a whole object.

        Raises:
            NotFoundInStoreError: There is no such object.
        """

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        """Read bytes ``start`` to ``end - 1`` of an object; fewer at the end of the object.

        Raises:
            NotFoundInStoreError: There is no such object.
        """

    def names(self, folder: str) -> AsyncIterator[str]:
        """Names of all objects in a folder and its subfolders, ascending. The list may be out of date."""

    async def folders(self, folder: str) -> list[str]:
        """Names of the folders directly in a folder; "" stands for the whole store."""


class _Address(NamedTuple):
    scheme: str
    place: str
    """The address without the settings."""
    directory: str
    """The path; of a local store: its directory."""
    settings: dict[str, str]


def check_address(url: str) -> None:
    """Check the form of an address; does not contact the store.

    Raises:
        ConfigError: The address is wrong.
    """
    _parsed(url)


def _parsed(url: str) -> _Address:
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} is not an address of an archive: {error}") from None
    if parts.scheme not in SCHEMES:
        raise ConfigError(
            f"the address of an archive begins with one of {', '.join(f'{each}://' for each in SCHEMES)}; found {url!r}"
        )
    settings = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in settings:
        if SECRETS.search(name):
            raise ConfigError(
                f"the address of an archive must not contain secrets: give {name} in an environment variable "
                "(docs/archive.md)"
            )
    if parts.username is not None or parts.password is not None:
        raise ConfigError("the address of an archive must not contain a user or a password")
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost") or not parts.path.strip("/") or settings or parts.fragment:
            raise ConfigError(f"the address of a local archive is file:///PATH; found {url!r}")
    elif not parts.netloc:
        raise ConfigError(
            f"the address of an archive needs a bucket or a container, as in s3://BUCKET/PREFIX; found {url!r}"
        )
    return _Address(parts.scheme, f"{parts.scheme}://{parts.netloc}{parts.path}", unquote(parts.path), settings)


def open_store(url: str) -> "ObstoreStore":
    """Open the store at an address; does not connect to the store yet.

    Args:
        url: ``file:///path``, ``s3://bucket/prefix?region=...``, ``gs://...`` or ``az://...``. Settings of the store,
            such as ``endpoint``, follow the question mark.

    Raises:
        ConfigError: The address is wrong, or the extra ``archive`` is not installed.
    """
    scheme, address, local, settings = _parsed(url)
    try:
        import obstore.exceptions
        from obstore.store import LocalStore, from_url
    except ImportError:
        raise ConfigError(f"an archive needs obstore: {with_extra('archive')}") from None
    if scheme == "file":
        directory = Path(local)
        if not directory.is_dir():
            raise ConfigError(f"the archive {url} is not a directory: make the directory, or mount its file system")
        try:
            return ObstoreStore(url, LocalStore(directory), directory)
        except (obstore.exceptions.BaseError, OSError) as error:
            raise ConfigError(f"the archive {url} cannot be opened: {_first_line(error)}") from None
    open_any: Any = from_url  # the scheme decides which settings there are
    client = {"allow_http": True} if settings.get("endpoint", "").startswith("http://") else {}
    try:
        store = open_any(address, retry_config=_RETRIES, client_options=client, **settings)
    except (obstore.exceptions.BaseError, TypeError, ValueError) as error:
        raise ConfigError(f"the archive {address} cannot be opened: {_first_line(error)}") from None
    return ObstoreStore(address, store)


class ObstoreStore:
    """A store through the package obstore; implements :class:`ObjectStore`."""

    def __init__(self, url: str, store: "Obstore", directory: Path | None = None) -> None:
        """``directory`` is the directory of a local store; its files are synced to disk."""
        self.url = url
        self._store = store
        self._directory = directory

    async def create(self, path: str, data: bytes) -> bool:
        import obstore
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

        try:
            await obstore.put_async(self._store, path, data, mode="create", use_multipart=False)
        except (AlreadyExistsError, PreconditionError):
            return False
        except (BaseError, OSError) as error:
            raise self._unavailable(path, error) from error
        await self._sync(path)
        return True

    async def put(self, path: str, data: bytes) -> None:
        import obstore
        from obstore.exceptions import BaseError

        try:
            await obstore.put_async(self._store, path, data)
        except (BaseError, OSError) as error:
            raise self._unavailable(path, error) from error
        await self._sync(path)

    async def remove(self, path: str) -> None:
        """Remove an object, whether it is there or not; no object of an archive. Raises ``StoreUnavailableError``."""
        import obstore
        from obstore.exceptions import BaseError

        try:
            await obstore.delete_async(self._store, path)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise self._unavailable(path, error) from error

    async def get(self, path: str) -> bytes:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return bytes(await (await obstore.get_async(self._store, path)).bytes_async())
        except FileNotFoundError:
            raise NotFoundInStoreError(f"{self.url}/{path} does not exist") from None
        except (BaseError, OSError) as error:
            raise self._unavailable(path, error) from error

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        import obstore
        from obstore.exceptions import BaseError

        try:
            return bytes(await obstore.get_range_async(self._store, path, start=start, end=end))
        except FileNotFoundError:
            raise NotFoundInStoreError(f"{self.url}/{path} does not exist") from None
        except (BaseError, OSError) as error:
            raise self._unavailable(path, error) from error

    async def names(self, folder: str) -> AsyncIterator[str]:
        import obstore
        from obstore.exceptions import BaseError

        found: list[str] = []
        try:
            async for batch in obstore.list(self._store, prefix=folder):
                found += [each["path"][len(folder) :].lstrip("/") for each in batch]
        except (BaseError, OSError) as error:
            raise self._unavailable(folder, error) from error
        for name in sorted(found):
            yield name

    async def folders(self, folder: str) -> list[str]:
        import obstore
        from obstore.exceptions import BaseError

        try:
            found = await obstore.list_with_delimiter_async(self._store, prefix=folder or None)
        except (BaseError, OSError) as error:
            raise self._unavailable(folder, error) from error
        return sorted(each.rstrip("/").rpartition("/")[2] for each in found["common_prefixes"])

    async def _sync(self, path: str) -> None:
        """Sync a local file and its directories to disk, so that they survive a crash of the machine."""
        if self._directory is None:
            return
        try:
            await asyncio.to_thread(_sync_file, self._directory, self._directory / path)
        except OSError as error:
            raise self._unavailable(path, error) from error

    def _unavailable(self, path: str, error: Exception) -> ArchiveError:
        return StoreUnavailableError(f"the object store {self.url} failed at {path or '/'}: {_first_line(error)}")


def _sync_file(top: Path, path: Path) -> None:
    for each in (path, *path.parents):
        descriptor = os.open(each, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if each == top:
            return


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(":") if lines else type(error).__name__
