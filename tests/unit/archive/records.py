"""Records in the form of the disk, and a store in memory that fails as it is told to."""

from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID

from waltz.archive.errors import NotFoundInStoreError, StoreUnavailableError
from waltz.archive.object_format import ObjectWriter, SealedObject
from waltz.common.checksum import checksum
from waltz.common.ids import ReqId
from waltz.common.records import Record
from waltz.storage.disk.segment.segment_format import encode_record

KEY = UUID("6d9f4f2e-37a1-4c3d-9d5a-0b1c2d3e4f50")
PARTITION = 3


def record(transaction_id: int, data: bytes) -> Record:
    req_id = ReqId.of(7, 1, PARTITION, transaction_id % 1000)
    return Record(transaction_id, bytes(req_id), transaction_id % 5, data, checksum(data))


def stored(first: int, payloads: Sequence[bytes]) -> list[bytes]:
    return [encode_record(record(first + place, data)) for place, data in enumerate(payloads)]


def sealed(first: int, payloads: Sequence[bytes], key: UUID = KEY, partition_id: int = PARTITION) -> SealedObject:
    writer = ObjectWriter(key, partition_id, first)
    pieces = stored(first, payloads)
    writer.add(b"".join(pieces), [*map(len, pieces)])
    return writer.finish()


class MemoryStore:
    """Implements ``ObjectStore``; ``before`` and ``after`` are called around each call, and may raise."""

    url = "memory://archive"

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda verb, path: None
        self.after: Callable[[str, str], None] = lambda verb, path: None
        self.listed: dict[str, bytes] | None = None
        """What listings show, when it is older than the objects."""

    async def create(self, path: str, data: bytes) -> bool:
        self._begin("create", path)
        is_new = path not in self.objects
        self.objects.setdefault(path, data)
        self.after("create", path)
        return is_new

    async def put(self, path: str, data: bytes) -> None:
        self._begin("put", path)
        self.objects[path] = data
        self.after("put", path)

    async def remove(self, path: str) -> None:
        self._begin("remove", path)
        self.objects.pop(path, None)
        self.after("remove", path)

    async def get(self, path: str) -> bytes:
        self._begin("get", path)
        if path not in self.objects:
            raise NotFoundInStoreError(path)
        return self.objects[path]

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        return (await self.get(path))[start:end]

    async def names(self, folder: str) -> AsyncIterator[str]:
        self._begin("names", folder)
        shown = self.objects if self.listed is None else self.listed
        for path in sorted(shown):
            if path.startswith(f"{folder}/"):
                yield path[len(folder) + 1 :]

    async def folders(self, folder: str) -> list[str]:
        self._begin("folders", folder)
        parts = folder.split("/") if folder else []
        found = {path.split("/")[len(parts)] for path in self.objects if path.split("/")[: len(parts)] == parts}
        return sorted(found)

    def _begin(self, verb: str, path: str) -> None:
        self.calls.append((verb, path))
        self.before(verb, path)


def fail(verb: str, path: str) -> None:
    raise StoreUnavailableError(f"away: {verb} {path}")
