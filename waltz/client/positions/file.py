"""Positions in a file: one line of JSON, replaced as a whole, for a consumer that is one process."""

import asyncio
import json
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from waltz.client.databases.marks import Mark, request_id_of
from waltz.client.errors import PositionConflictError, PositionsError
from waltz.client.positions.interface import Move, PositionStore
from waltz.common.checksum import crc32

_FORMAT = 1


class FilePositions(PositionStore):
    """Positions in a file of their own: ``FilePositions("mails.positions")``. Its directory has to be there.

    The file is replaced by a new one that is already durable, so a crash leaves the old or the new positions. A locked
    file beside it keeps two processes from using the same positions.

    Examples:
        ```python
        positions = waltz.FilePositions(f"{directory}/mails.positions")
        async with client.consume(positions, commit_every_s=1.0) as consumer:
            print((await anext(consumer)).data)
        ```
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = Path(path)
        self._marks: dict[int, Mark] = {}
        self._lock: int | None = None

    async def load(self, cluster_key: str, partition_ids: Collection[int]) -> dict[int, int]:
        """The stored positions in these partitions; they are this consumer's until :meth:`close`.

        Raises ``PositionsError`` when they are of another cluster, damaged, or in use by another consumer, and
        ``OSError`` when the file cannot be read.
        """
        locked_before = self._lock is not None
        loading = asyncio.ensure_future(asyncio.to_thread(self._load, cluster_key))
        try:
            await asyncio.shield(loading)
        except BaseException:
            await asyncio.wait((loading,))  # even if the call was given up, the thread may be about to lock the file
            if not locked_before:
                await self.close()
            raise
        return {each: self._marks[each].transaction_id for each in partition_ids if each in self._marks}

    def request_id(self, partition_id: int) -> bytes:
        return self._marks[partition_id].request_id if partition_id in self._marks else b""

    async def save(self, cluster_key: str, moves: Mapping[int, Move]) -> None:
        """Change positions, all or none; they are durable when this returns.

        Raises ``PositionConflictError`` when one of them is not what it is expected to be, and ``OSError`` when the
        file cannot be written.
        """
        present = {each: mark.transaction_id for each, mark in self._marks.items()}
        conflicting = [each for each, move in moves.items() if present.get(each) not in move]
        if conflicting:
            raise PositionConflictError(conflicting, str(self._path))
        changed = {
            each: Mark(move.after, move.request_id) for each, move in moves.items() if move.after != present.get(each)
        }
        marks = {**self._marks, **changed}
        await asyncio.to_thread(self._write, cluster_key, marks)
        self._marks = marks

    async def close(self) -> None:
        """Let other processes use the file."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _load(self, cluster_key: str) -> None:
        if self._lock is None:
            self._lock = _lock(self._path.with_name(self._path.name + ".lock"), self._path)
        try:
            content = self._path.read_bytes()
        except FileNotFoundError:
            self._marks = {}
            return
        self._marks = self._decoded(content, cluster_key)

    def _decoded(self, content: bytes, cluster_key: str) -> dict[int, Mark]:
        damaged = (
            f"the positions in {self._path} are damaged; put a copy of the file back, or remove it and begin with "
            "`start` where the consumer is to go on"
        )
        try:
            document = json.loads(content)
            body = document["body"]
            if document["crc32"] != crc32(_encoded(body)) or body["format"] != _FORMAT:
                raise PositionsError(damaged)
            key = body["cluster"]
            request_ids = body.get("requestIds", {})
            marks = {
                int(each): Mark(position, request_id_of(request_ids.get(each)))
                for each, position in body["positions"].items()
            }
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise PositionsError(damaged) from None
        if key != cluster_key:
            raise PositionsError(foreign(str(self._path), key, cluster_key))
        return marks

    def _write(self, cluster_key: str, marks: Mapping[int, Mark]) -> None:
        body = {
            "cluster": cluster_key,
            "format": _FORMAT,
            "positions": {str(each): mark.transaction_id for each, mark in marks.items()},
            "requestIds": {str(each): mark.request_id.hex() for each, mark in marks.items() if mark.request_id},
        }
        temporary = self._path.with_name(self._path.name + ".new")
        with temporary.open("wb") as file:
            file.write(json.dumps({"body": body, "crc32": crc32(_encoded(body))}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
        if sys.platform != "win32":
            directory = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)


def foreign(where: str, theirs: object, ours: str) -> str:
    """The error text for positions of another cluster."""
    return (
        f"the positions in {where} are those of cluster {theirs}, and this is cluster {ours}: another one, or "
        "made anew. Use other positions for it; those that are not needed any more can be removed"
    )


def _encoded(body: object) -> bytes:
    return json.dumps(body, sort_keys=True).encode()


def _lock(path: Path, positions: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _lock_file(descriptor)
    except OSError:
        os.close(descriptor)
        raise PositionsError(
            f"the positions in {positions} are in use by another consumer; give each consumer a file of its own"
        ) from None
    return descriptor


def _lock_file(descriptor: int) -> None:
    """Lock the file until it is closed. Raises ``OSError`` when it is locked already."""
    if sys.platform == "win32":
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
