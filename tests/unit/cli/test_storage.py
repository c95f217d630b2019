"""What is said before files of replicas are deleted."""

from argparse import Namespace
from typing import Any

import pytest

from waltz.cli import storage
from waltz.common.errors import WaltzError
from waltz.common.ids import Endpoint

ADMIN = Endpoint("storage-1", 2)
LOST = "without these files its transactions are lost"
LISTED = "the cluster lists storage-1:2 among the replicas of"


async def checked(monkeypatch: pytest.MonkeyPatch, listed: dict[int, int] | None, *, unless_listed: bool) -> None:
    async def found(_: object, admin: Endpoint, partition_ids: list[int]) -> dict[int, int] | None:
        assert (admin, partition_ids) == (ADMIN, [0, 1, 2])
        return listed

    monkeypatch.setattr(storage, "listed_replicas", found)
    session: Any = Namespace(cluster=None)
    options = Namespace(storage=ADMIN, partition=[0, 1, 2], unless_listed=unless_listed)
    await storage._check_listed(options, session)


@pytest.mark.parametrize(
    ("listed", "text"),
    [
        ({0: 1, 2: 2}, f"{LISTED} partitions 0, 2"),
        (
            {0: 0, 1: 0, 2: 1},
            f"{LISTED} partitions 0-2, and no other one of partitions 0-1: {LOST}",
        ),
        (None, "the cluster knows no storage with the admin port storage-1:2, and perhaps lists its replicas"),
    ],
)
async def test_listed_replicas_are_warned_of_or_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], listed: dict[int, int] | None, text: str
) -> None:
    await checked(monkeypatch, listed, unless_listed=False)
    assert capsys.readouterr().err == f"Warning: {text}\n"
    with pytest.raises(WaltzError) as refused:
        await checked(monkeypatch, listed, unless_listed=True)
    assert str(refused.value).startswith(f"{text}: nothing was deleted.")


@pytest.mark.parametrize("unless_listed", [False, True])
async def test_nothing_is_said_of_replicas_that_were_taken_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], unless_listed: bool
) -> None:
    await checked(monkeypatch, {}, unless_listed=unless_listed)
    assert capsys.readouterr().err == ""
