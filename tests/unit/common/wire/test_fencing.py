"""The texts of a fence are those of the original, and nothing else is taken for one."""

import pytest

from waltz.common.wire.fencing import (
    CONCURRENT_UPDATE_EXCEPTION,
    STORAGE_EXCEPTION,
    fence_message,
    is_fence,
    offline_fence_message,
)

CUE = "com.wepay.waltz.storage.exception.ConcurrentUpdateException: "
SE = "com.wepay.waltz.storage.exception.StorageException: "


def test_the_texts_are_those_of_the_original() -> None:
    online = f"{CONCURRENT_UPDATE_EXCEPTION}: {fence_message(5, 4)}"
    offline = f"{STORAGE_EXCEPTION}: {offline_fence_message(5, 4)}"
    assert online == CUE + "session id has changed to 5, but request context contains 4"
    assert offline == SE + "partition last session id has changed to 5, but request context contains 4"
    assert is_fence(online)
    assert is_fence(offline)


@pytest.mark.parametrize(
    "text",
    [
        "",
        CUE,
        SE + "session id has changed to 5, but request context contains 4",
        CUE + "partition last session id has changed to 5, but request context contains 4",
        "session id has changed to 5, but request context contains 4",
        SE + "read and write for partition=0 have been disabled on storage node",
    ],
)
def test_other_failures_are_no_fence(text: str) -> None:
    assert not is_fence(text)
