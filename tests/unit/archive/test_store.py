"""The object store in a local directory, and addresses that cannot be."""

import asyncio
import sys
from pathlib import Path

import pytest

from waltz.archive.errors import NotFoundInStoreError, StoreUnavailableError
from waltz.archive.store import check_address, open_store
from waltz.common.errors import ConfigError

pytest.importorskip("obstore")


async def test_directory_holds_objects(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    assert await store.create("k/0/manifest/1", b"one")
    assert not await store.create("k/0/manifest/1", b"two")
    assert await store.get("k/0/manifest/1") == b"one"
    await store.put("k/0/object", b"0123456789")
    await store.put("k/0/object", b"0123456789")
    assert await store.get_range("k/0/object", 3, 6) == b"345"
    assert await store.get_range("k/0/object", 8, 60) == b"89"
    assert [name async for name in store.names("k/0")] == ["manifest/1", "object"]
    assert [name async for name in store.names("k/7")] == []
    assert await store.folders("") == ["k"]
    assert await store.folders("k") == ["0"]
    for missing in (store.get("k/1"), store.get_range("k/1", 0, 4)):
        with pytest.raises(NotFoundInStoreError, match="k/1 does not exist"):
            await missing


async def test_an_object_is_removed_whether_it_is_there_or_not(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    await store.put("k/0/one", b"1")
    await store.put("k/0/other", b"2")
    for _ in range(2):
        await store.remove("k/0/one")
    assert [name async for name in store.names("k/0")] == ["other"]
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreUnavailableError, match="failed at k/0: "):
        await store.remove("k/0")


async def test_one_of_many_creations_counts(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    created = await asyncio.gather(*(store.create("entry", b"%d" % number) for number in range(20)))
    assert sum(created) == 1
    assert await store.get("entry") == b"%d" % created.index(True)


async def test_a_store_that_fails_says_so_in_one_line(tmp_path: Path) -> None:
    store = open_store(f"file://{tmp_path}")
    (tmp_path / "file").write_bytes(b"")
    for call in (store.put("file/below", b""), store.create("file/below", b"")):
        with pytest.raises(StoreUnavailableError, match="failed at file/below: ") as caught:
            await call
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("/var/archive", "begins with one of file://, s3://"),
        ("memory:///", "begins with one of file://, s3://"),
        ("file://host/path", "is file:///PATH"),
        ("file:///", "is file:///PATH"),
        ("file:///no/such/directory", "is not a directory: make the directory, or mount its file system"),
        ("file:///a?x=1", "is file:///PATH"),
        ("s3://bucket?secret_access_key=x", "must not contain secrets: give secret_access_key in an environment"),
        ("s3:///prefix", "needs a bucket or a container"),
        ("s3://[bucket", "'s3://\\[bucket' is not an address of an archive"),
        ("s3://user:word@bucket/", "must not contain a user or a password"),
        ("s3://bucket/?no_such_setting=1", "cannot be opened: "),
        ("az://container/prefix", "cannot be opened: "),
    ],
)
def test_wrong_addresses_are_refused(url: str, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        open_store(url)


@pytest.mark.parametrize("url", ["file:///no/such/directory", "s3://bucket/prefix?region=r", "gs://b", "az://c/p"])
def test_the_form_of_an_address_is_checked_wherever_the_store_is(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    check_address(url)


def test_without_its_extra_the_archive_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [each for each in sys.modules if each.split(".")[0] == "obstore"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(ConfigError, match=r"an archive needs obstore: .*archive"):
        open_store(f"file://{tmp_path}")


def test_other_stores_are_opened_without_a_connection() -> None:
    assert open_store("s3://bucket/prefix?region=eu-central-1").url == "s3://bucket/prefix"
    assert open_store("gs://bucket/prefix").url == "gs://bucket/prefix"
