"""A call that opens a closable object, for ``await`` as well as for ``async with``."""

from collections.abc import Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T", bound=AbstractAsyncContextManager[Any, Any])


class Opening(Coroutine[Any, Any, T]):
    """A coroutine, to be awaited once; ``async with`` closes its result at the end."""

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._opened: T

    def send(self, value: Any, /) -> Any:
        return self._work.send(value)

    def throw(self, *arguments: Any) -> Any:
        return self._work.throw(*arguments)

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, None, T]:
        return self._work.__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._work
        await self._opened.__aenter__()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._opened.__aexit__(kind, error, traceback)
