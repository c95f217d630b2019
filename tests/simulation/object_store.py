"""A simulated object store: slow, away, with answers that are lost, requests that land late, and old listings.

What is written is there for everybody at once, as in S3; only listings may be older. A request is on its way in the
network of the store: it lands although the process that sent it has died.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

from tests.simulation.cluster import World
from waltz.archive.errors import NotFoundInStoreError, StoreUnavailableError

T = TypeVar("T")

PATIENCE_S = 3.0
"""After so long the library gives a request up."""
LATE_MAX_S = 10.0
"""A request whose answer is lost lands within this time, if it does."""


class SimulatedObjectStore:
    """The store, which nothing happens to but what its conditions say. Implements ``ObjectStore`` for every process."""

    url = "memory://archive"

    def __init__(self, world: World, written: Callable[[str, bytes | None, bytes], None]) -> None:
        """``written`` is told path, bytes before and bytes of every object when it is there."""
        self.objects: dict[str, bytes] = {}
        self.away = False
        """Whether no request gets there."""
        self.slowness_s = 0.0
        """Added to every request, on average."""
        self.lost_share = 0.0
        """Share of the requests of which the answer is lost, and perhaps the request as well."""
        self.listing_age_s = 0.0
        """How old listings are, at most."""
        self._born_s: dict[str, float] = {}
        self._world = world
        self._written = written
        self._draw = world.random("object store")

    def heal(self) -> None:
        """End of all troubles."""
        self.away = False
        self.slowness_s = self.lost_share = self.listing_age_s = 0.0

    async def create(self, path: str, data: bytes) -> bool:
        return await self._request("create", path, lambda: path not in self.objects and self._write(path, data))

    async def put(self, path: str, data: bytes) -> None:
        await self._request("put", path, lambda: self._write(path, data))

    async def get(self, path: str) -> bytes:
        return await self._request("get", path, lambda: self._read(path))

    async def get_range(self, path: str, start: int, end: int) -> bytes:
        return await self._request("get_range", path, lambda: self._read(path)[start:end])

    async def names(self, folder: str) -> AsyncIterator[str]:
        begin = f"{folder}/"
        until_s = self._world.loop.now_s - self._draw.random() * self.listing_age_s

        def listed() -> list[str]:
            there = [path for path in sorted(self.objects) if path.startswith(begin) and self._born_s[path] <= until_s]
            return [path.removeprefix(begin) for path in there]

        for name in await self._request("names", folder, listed):
            yield name

    async def folders(self, folder: str) -> list[str]:
        begin = f"{folder}/" if folder else ""

        def listed() -> list[str]:
            below = [path.removeprefix(begin).split("/") for path in self.objects if path.startswith(begin)]
            return sorted({parts[0] for parts in below if len(parts) > 1})

        return await self._request("folders", folder, listed)

    def _write(self, path: str, data: bytes) -> bool:
        before = self.objects.get(path)
        self.objects[path] = data
        self._born_s.setdefault(path, self._world.loop.now_s)
        self._world.trace.line("store", f"has {path}")
        self._written(path, before, data)
        return True

    def _read(self, path: str) -> bytes:
        if path not in self.objects:
            raise NotFoundInStoreError(path)
        return self.objects[path]

    def _latency_s(self) -> float:
        return 0.002 + 0.02 * self._draw.random() + 2 * self.slowness_s * self._draw.random()

    async def _request(self, verb: str, path: str, effect: Callable[[], T]) -> T:
        if self.away:
            await asyncio.sleep(0.1)
            raise StoreUnavailableError(f"the store is away: {verb} {path}")
        loop, context = self._world.loop, self._world.network.context
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        back_s = self._latency_s()

        def answered(result: T | NotFoundInStoreError) -> None:
            if answer.done():
                return
            if isinstance(result, NotFoundInStoreError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        def land(*, is_answered: bool) -> None:
            try:
                result: T | NotFoundInStoreError = effect()
            except NotFoundInStoreError as error:
                result = error
            if is_answered:
                loop.call_later(back_s, answered, result, context=context)

        fate = self._draw.random()
        if fate >= self.lost_share:
            loop.call_later(self._latency_s(), lambda: land(is_answered=True), context=context)
        elif fate < 0.7 * self.lost_share:  # the request lands
            late_s = self._draw.choice((0.02, 0.02, LATE_MAX_S)) * self._draw.random()
            loop.call_later(late_s, lambda: land(is_answered=False), context=context)
        try:
            async with asyncio.timeout(PATIENCE_S + 2 * self.slowness_s):
                return await answer
        except TimeoutError:
            raise StoreUnavailableError(f"no answer: {verb} {path}") from None
