"""The open journal: groups are appended and made durable one at a time, and released when no replay needs them."""

import errno
import os
from collections.abc import Sequence
from uuid import UUID

from waltz.storage.disk.files.files import File, Files
from waltz.storage.disk.journal.entries import Closed, Entry
from waltz.storage.disk.journal.groups import BLOCK_BYTES, encode_group
from waltz.storage.disk.journal.reading import Contents, Place, read_groups
from waltz.storage.disk.journal.ring import Ring

DIRECTORY_NAME = "journal"
"""The name of the journal's directory in the storage directory."""

DEFAULT_FILE_SIZE_BYTES = 64 << 20
DEFAULT_MAX_FILES = 8
MIN_FILES = 2
"""With one file, nothing could be released before the file is full."""


class Journal:
    """The journal of one storage directory. Methods that say so block; no two appends overlap.

    A group is durable before the next group is written. So of two groups on disk the first was durable.
    """

    def __init__(self, files: Files, ring: Ring, contents: Contents) -> None:
        """Use :meth:`open`."""
        self.failure: str | None = None
        """The failed write or sync after which nothing is written to the journal; ``None`` when there was none."""
        self._files = files
        self._ring = ring
        self._number = contents.next_number
        self._check = contents.last_check
        self._released = self._oldest = contents.next_number
        self._file: File | None = None
        self._sequence = 0
        self._offset = 0
        self._next_file()

    @classmethod
    def open(
        cls,
        files: Files,
        directory: str,
        *,
        cluster_key: UUID,
        contents: Contents,
        file_size_bytes: int = DEFAULT_FILE_SIZE_BYTES,
        max_files: int = DEFAULT_MAX_FILES,
    ) -> "Journal":
        """Begin to write after the groups that were read. Blocking.

        From here on no replay needs the groups that were read: their changes have to be durable in the files where
        they belong. The control file has to be guarded before the first :meth:`append`.

        Args:
            files: The file system.
            directory: The directory of the journal; made when it is missing.
            cluster_key: The key of the cluster.
            contents: What was read from the directory, or what :meth:`remains` of a journal that has failed.
            file_size_bytes: The size of each file, a multiple of 4 KiB.
            max_files: The largest number of files, at least two.

        Raises:
            ValueError: The sizes are not allowed.
            JournalFullError: The disk has no room for a file.
            OSError: A file cannot be written or synced.
        """
        if file_size_bytes < 2 * BLOCK_BYTES or file_size_bytes % BLOCK_BYTES or max_files < MIN_FILES:
            raise ValueError(f"no journal of {max_files} files with {file_size_bytes} bytes each")
        ring = Ring(
            files,
            directory,
            cluster_key=cluster_key,
            volume_id=contents.volume_id or os.urandom(16),
            next_sequence=contents.next_sequence,
            file_size_bytes=file_size_bytes,
            max_files=max_files,
        )
        if contents.distrusted:
            ring.distrust()
        journal = cls(files, ring, contents)
        try:
            ring.remove_unfit()
        except BaseException:
            journal.abandon()
            raise
        return journal

    @property
    def next_number(self) -> int:
        """The number of the next group."""
        return self._number

    @property
    def oldest_number(self) -> int:
        """The number of the oldest group that a replay after a crash would take.

        After a :meth:`release` this number rises with the next group or the next file: these record it durably.
        """
        return self._oldest

    @property
    def group_limit_bytes(self) -> int:
        """The size of the largest group that can be appended."""
        return self._ring.group_limit_bytes

    @property
    def size_bytes(self) -> int:
        """The size of the groups that fit into all files, including files that were not made yet."""
        return self.free_bytes + self._offset - BLOCK_BYTES + self._ring.used_before_bytes

    @property
    def free_bytes(self) -> int:
        """The size of the groups that can be appended before groups have to be released."""
        return self._ring.file_size_bytes - self._offset + self._ring.unused_bytes

    def append(self, entries: Sequence[Entry]) -> int:
        """Make entries durable as one group; returns its number. Blocking.

        Args:
            entries: The entries, at least one.

        Raises:
            JournalFullError: No file is free. Nothing was written, and the append may be tried again.
            ValueError: The group is larger than :attr:`group_limit_bytes`; nothing was written.
            OSError: A write or sync has failed, now or before. Nothing is written to the journal any more.
        """
        self._check_usable()
        base = self._released
        data, check = self._encode(entries, base)
        if self._offset + len(data) > self._ring.file_size_bytes:
            if len(data) > self.group_limit_bytes:
                raise ValueError(f"a group of {len(data)} bytes; the largest has {self.group_limit_bytes}")
            self._next_file()
            data, check = self._encode(entries, base)
        assert self._file is not None
        try:
            self._file.write(self._offset, [data])
            self._file.datasync()
        except OSError as error:
            self.failure = f"read-only since a write or sync failed: {error}"
            raise
        number = self._number
        self._number += 1
        self._oldest = max(self._oldest, base)
        self._offset += len(data)
        self._check = check
        return number

    def release(self, number: int) -> None:
        """No replay needs the groups before this number any more. Does not block; from any thread."""
        self._released = max(self._released, min(number, self._number))
        self._ring.reclaim(self._released)

    def read(self, first: int, last: int) -> list[Place]:
        """The places of groups that were appended and not released. Blocking; may run beside :meth:`append`.

        Args:
            first: The number of the first group.
            last: The number of the last group.

        Raises:
            OSError: A file cannot be read.
            StorageError: A group is damaged.
        """
        return read_groups(self._files, self._ring.used_from(first), self._ring.volume_id, first, last)

    def extend(self) -> bool:
        """Make a file in advance, unless a file is free or no further file is allowed. Blocking; raises ``OSError``.

        Returns whether a file was made. May run beside :meth:`append`, which makes a file itself when none is free.
        """
        return self.failure is None and self._ring.extend()

    def close(self) -> bool:
        """Close the journal. If no group is needed, write an entry that says so. Blocking; raises ``OSError``.

        Returns whether no group is needed: then the guard of the control file may be taken away.
        """
        drained = self.failure is None and self._file is not None and self._released >= self._number
        try:
            if drained:
                self.append([Closed()])
        finally:
            self.abandon()
        return drained

    def abandon(self) -> None:
        """Close the file without writing anything. Blocking."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def remains(self) -> Contents:
        """After a failure: the contents after which another journal begins, in new files.

        No group of the failed journal may be needed: all segments, marks and fences are durable, and the control file
        is not guarded any more.
        """
        return Contents(
            places=(),
            torn=False,
            lost=(),
            volume_id=self._ring.volume_id,
            next_number=self._number + 1,
            next_sequence=self._ring.next_sequence,
            last_check=0,
            distrusted=True,
        )

    def _encode(self, entries: Sequence[Entry], base: int) -> tuple[bytes, int]:
        return encode_group(
            entries,
            volume_id=self._ring.volume_id,
            sequence=self._sequence,
            number=self._number,
            base=base,
            previous_check=self._check,
        )

    def _next_file(self) -> None:
        base = self._released
        try:
            file, self._sequence = self._ring.begin(self._number, base)
        except OSError as error:
            self.failure = f"read-only since a file could not be begun: {error}"
            raise
        self.abandon()
        self._file, self._offset, self._oldest = file, BLOCK_BYTES, base

    def _check_usable(self) -> None:
        if self.failure is not None:
            raise OSError(errno.EROFS, self.failure)
        if self._file is None:
            raise OSError(errno.EBADF, "the journal is closed")
