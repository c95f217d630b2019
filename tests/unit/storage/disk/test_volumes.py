"""The directories of a node on several disks: one valid copy of each partition, whatever fails, and none that is empty.

The model is naive: the content of each partition, and the directories that are mounted.
"""

import contextlib
import json
import random
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.storage.crash_files import CrashFiles, CrashNow, Directory
from tests.unit.storage.log_testing import KEY
from waltz.storage.disk.directory_copy import copy_rest, make_empty
from waltz.storage.disk.files.files import Files, OsFiles
from waltz.storage.disk.volumes import EVEN_WITHIN_BYTES, VOLUME_NAME, VOLUMES_NAME, Volumes
from waltz.storage.errors import StorageError

FIRST, OTHERS = "/first", ["/one", "/two"]
OTHER_KEY = UUID("00000000-0000-0000-0000-00000000000f")
SEEDS = st.integers(0, 1 << 32)
ROUNDS = 6
STEPS = 4


def new_files() -> CrashFiles:
    files = CrashFiles()
    for path in (FIRST, *OTHERS):
        files.make_directory(path)
    files.sync_directory("/")
    return files


def open_volumes(files: Files, further: list[str] | None = None) -> Volumes:
    return Volumes.open(files, FIRST, OTHERS if further is None else further, KEY)


def link(partition_id: int) -> str:
    return f"{FIRST}/{partition_id}"


def write(files: Files, partition_id: int, content: bytes) -> None:
    """What a partition does with its directory: files whose content and names are durable."""
    directory = link(partition_id)
    if not files.exists(directory):
        files.make_directory(directory)
    file = files.open(f"{directory}/data", create=True)
    file.truncate(0)
    file.write(0, [content])
    file.sync()
    file.close()
    files.sync_directory(directory)
    files.sync_directory(FIRST)


def placed(volumes: Volumes, files: Files, partition_id: int, content: bytes = b"?") -> str:
    """Place a partition and write to it; returns its directory."""
    volumes.place(partition_id)
    write(files, partition_id, content)
    target = files.linked_directory(link(partition_id))
    return FIRST if target is None else str(Path(target).parent)


def unmount(files: CrashFiles, path: str) -> Directory:
    """An empty directory in place of a disk."""
    disk = files.root.names[path[1:]]
    assert isinstance(disk, Directory)
    mount(files, path, Directory())
    return disk


def mount(files: CrashFiles, path: str, disk: Directory) -> None:
    files.root.names[path[1:]] = files.root.durable[path[1:]] = disk


def read(files: CrashFiles, partition_id: int) -> bytes:
    return files.contents(f"{link(partition_id)}/data")


def volume_of(volumes: Volumes, path: str) -> UUID:
    found = next(each.volume_id for each in volumes.states() if each.path == path)
    assert found is not None
    return found


# One valid copy, whatever fails


@given(seed=SEEDS)
@settings(max_examples=300, deadline=None)
def test_there_is_one_valid_copy_whatever_fails(seed: int) -> None:
    choices = random.Random(seed)
    files = new_files()
    contents: dict[int, bytes] = {}
    disks = {path: files.root.names[path[1:]] for path in OTHERS}
    for each in range(ROUNDS):
        volumes = open_volumes(files)
        with contextlib.suppress(CrashNow):
            files.fail(CrashNow(), after=choices.randint(0, 60))
            for step in range(STEPS):
                partition_id = choices.randrange(3)
                if choices.random() < 0.4 and partition_id in contents:
                    volumes.move(partition_id, choices.choice([FIRST, *OTHERS]))
                elif partition_id not in contents:
                    volumes.place(partition_id)
                    write(files, partition_id, b"%d %d" % (each, step))
                    contents[partition_id] = b"%d %d" % (each, step)
        if choices.random() < 0.5:
            files.crash(choices)
        else:
            files.restart()
        for path, place in zip(OTHERS, choices.sample(OTHERS, len(OTHERS)), strict=True):  # mounted elsewhere
            disk = disks[path]
            assert isinstance(disk, Directory)
            mount(files, place, disk)
        found = open_volumes(files)
        assert not found.absent()
        assert {each: read(files, each) for each in contents} == contents
        found.close()
        names = [(path, name) for path in (FIRST, *OTHERS) for name in files.list_directory(path)]
        assert not [name for _, name in names if name.endswith((".moving", ".moved"))]
        copies = [
            name
            for path, name in names
            if files.linked_directory(f"{path}/{name}") is None and files.exists(f"{path}/{name}/data")
        ]
        assert all(copies.count(str(partition_id)) == 1 for partition_id in contents)


@pytest.mark.parametrize("to", [FIRST, "/two"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_move_that_fails_at_any_place_leaves_the_partition_where_it_was(to: str, dies: bool) -> None:
    """The destination fails once, at each of its calls in turn; the process may die while the move is taken back."""
    for after in range(200):
        files = new_files()
        volumes = open_volumes(files)
        partition_id = next(each for each in range(9) if placed(volumes, files, each, b"?") == "/one")
        move = volumes.plan_move(partition_id, to)
        assert move is not None
        make_empty(files, move.staged)
        copy_rest(files, f"{move.source}/data", f"{move.staged}/data")
        files.fail(OSError("planted"), after=after)
        try:
            volumes.switch(move)
        except OSError:
            assert volumes.absence(partition_id) is not None
            if dies:
                files.fail(CrashNow(), after=after % 7)
                with contextlib.suppress(CrashNow):
                    volumes.take_back(move)
                    volumes.end_move(move)
                files.crash(random.Random(after))
                volumes = open_volumes(files)
            else:
                volumes.take_back(move)
                volumes.end_move(move)
                assert volumes.volume_of(partition_id) == move.since
            assert volumes.absence(partition_id) is None
        else:
            files.clear_fault()
            volumes.take_back(move)
            volumes.end_move(move)
            assert volumes.volume_of(partition_id) == move.since
            assert read(files, partition_id) == b"?"
            return
        assert read(files, partition_id) == b"?"
    raise AssertionError("a switch takes more than 200 file calls")


def test_a_start_that_fails_at_any_place_loses_nothing() -> None:
    for after in range(200):
        files = new_files()
        volumes = open_volumes(files)
        where = {partition_id: placed(volumes, files, partition_id, b"%d" % partition_id) for partition_id in range(4)}
        assert set(where.values()) == {FIRST, *OTHERS}
        one, two = unmount(files, "/one"), unmount(files, "/two")
        mount(files, "/one", two)
        mount(files, "/two", one)
        files.restart()
        files.fail(CrashNow(), after=after)
        with contextlib.suppress(CrashNow):
            open_volumes(files)
        done = files.clear_fault()
        files.crash(random.Random(after))
        open_volumes(files)
        assert [read(files, partition_id) for partition_id in range(4)] == [b"0", b"1", b"2", b"3"]
        if done:
            return
    raise AssertionError("a start takes more than 200 file calls")


# Where partitions are placed


def test_partitions_are_spread_over_the_directories_with_room() -> None:
    files = new_files()
    volumes = open_volumes(files)
    found = [placed(volumes, files, partition_id) for partition_id in range(9)]
    assert sorted(found) == sorted(3 * [FIRST, *OTHERS])


def test_a_directory_with_less_room_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_files()
    free = {FIRST: EVEN_WITHIN_BYTES, "/one": 3 * EVEN_WITHIN_BYTES, "/two": 2 * EVEN_WITHIN_BYTES}
    monkeypatch.setattr(files, "free_bytes", lambda path: free[path])
    volumes = open_volumes(files)
    assert {placed(volumes, files, partition_id) for partition_id in range(8)} == {"/one", "/two"}
    free["/one"] += 1
    assert {placed(volumes, files, partition_id) for partition_id in range(8, 16)} == {"/one"}


def test_a_disk_that_cannot_be_read_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_files()
    volumes = open_volumes(files)
    found = files.exists

    def exists(path: str) -> bool:
        if path.startswith("/one/"):
            raise OSError("planted")
        return found(path)

    monkeypatch.setattr(files, "exists", exists)
    assert {placed(volumes, files, partition_id) for partition_id in range(8)} == {FIRST, "/two"}


def test_a_partition_of_the_first_directory_stays_there() -> None:
    files = new_files()
    write(files, 7, b"old")
    volumes = open_volumes(files)
    volumes.place(7)
    assert files.linked_directory(link(7)) is None


def test_a_place_is_kept() -> None:
    files = new_files()
    volumes = open_volumes(files)
    before = [placed(volumes, files, partition_id) for partition_id in range(3)]
    volumes.close()
    volumes = open_volumes(files)
    assert [placed(volumes, files, partition_id) for partition_id in range(3)] == before


def test_without_further_directories_nothing_is_written() -> None:
    files = new_files()
    volumes = open_volumes(files, [])
    volumes.place(1)
    assert volumes.paths() == [FIRST]
    assert files.list_directory(FIRST) == []


def test_files_that_were_left_behind_are_not_taken_for_a_partition() -> None:
    files = new_files()
    volumes = open_volumes(files, ["/one"])
    files.make_directory("/one/1")
    files.open("/one/1/data", create=True).close()
    assert placed(volumes, files, 1) == FIRST


def test_a_link_is_made_after_a_failed_attempt() -> None:
    """A directory in its place would be a second one of the partition."""
    linked = 0
    for partition_id in range(6):
        files = new_files()
        volumes = open_volumes(files)
        files.fail(OSError("planted"), operation="link_directory")
        with contextlib.suppress(OSError):
            volumes.place(partition_id)
        files.clear_fault()
        volumes.place(partition_id)
        volume_id = volumes.volume_of(partition_id)
        assert files.exists(link(partition_id)) == (volume_id is not None)
        linked += volume_id is not None
    assert linked


def test_a_lost_directory_of_a_volume_is_not_taken_for_an_empty_partition() -> None:
    files = new_files()
    volumes = open_volumes(files)
    partition_id = next(each for each in range(10) if placed(volumes, files, each) == "/one")
    files.remove(f"/one/{partition_id}/data")
    files.remove_directory(f"/one/{partition_id}")
    volumes.place(partition_id)
    assert not files.exists(f"/one/{partition_id}")
    volumes.close()
    open_volumes(files).place(partition_id)
    assert not files.exists(f"/one/{partition_id}")


# Missing volumes


def absent_partition(files: CrashFiles) -> tuple[int, Directory]:
    """A partition of the volume in ``/one``, which is taken away."""
    volumes = open_volumes(files)
    partition_id = next(each for each in range(10) if placed(volumes, files, each, b"mine") == "/one")
    volumes.close()
    return partition_id, unmount(files, "/one")


def test_a_missing_volume_does_not_look_like_an_empty_partition() -> None:
    files = new_files()
    partition_id, disk = absent_partition(files)
    volumes = open_volumes(files)
    volumes.place(partition_id)
    assert not files.exists(link(partition_id))
    reason = volumes.absence(partition_id)
    assert reason is not None
    assert reason.endswith("is missing; it was in /one")
    assert files.list_directory("/one") == []  # not made a new volume
    assert partition_id in volumes.absent()
    volumes.close()
    mount(files, "/one", disk)
    volumes = open_volumes(files)
    assert volumes.absence(partition_id) is None
    assert read(files, partition_id) == b"mine"


def test_a_volume_that_is_not_configured_any_more_is_missing() -> None:
    files = new_files()
    partition_id, disk = absent_partition(files)
    mount(files, "/one", disk)
    assert open_volumes(files, ["/two"]).absence(partition_id) is not None


def test_a_volume_is_found_in_another_place() -> None:
    files = new_files()
    partition_id, disk = absent_partition(files)
    files.make_directory("/elsewhere")
    mount(files, "/elsewhere", disk)
    volumes = open_volumes(files, ["/elsewhere", "/two"])
    assert volumes.absence(partition_id) is None
    assert read(files, partition_id) == b"mine"


def test_an_empty_volume_may_be_taken_away_and_come_back() -> None:
    files = new_files()
    volumes = open_volumes(files)
    volume_id = volume_of(volumes, "/one")
    volumes.close()
    open_volumes(files, ["/two"]).close()
    volumes = open_volumes(files)
    assert volume_of(volumes, "/one") == volume_id


def test_what_the_journal_had_for_a_missing_volume_is_told_when_it_is_back() -> None:
    files = new_files()
    partition_id, disk = absent_partition(files)
    volumes = open_volumes(files)
    volumes.note_lost({partition_id: "records are lacking"})
    assert volumes.lost() == [partition_id]
    volumes.close()
    volumes = open_volumes(files)
    assert volumes.lost() == [partition_id]
    volumes.close()
    mount(files, "/one", disk)
    volumes = open_volumes(files)
    assert volumes.lost() == []
    assert files.contents(f"{link(partition_id)}/journal.lost") == b"records are lacking"


def test_a_volume_that_is_back_and_cannot_be_written_is_given_up() -> None:
    files = new_files()
    partition_id, disk = absent_partition(files)
    volumes = open_volumes(files)
    volumes.note_lost({partition_id: "records are lacking"})
    volumes.close()
    mount(files, "/one", disk)
    files.fail(OSError("planted"), operation="sync")
    volumes = open_volumes(files)
    assert str(volumes.absence(partition_id)).endswith("in /one cannot be used: planted")
    assert volumes.lost() == [partition_id]
    volumes.close()
    open_volumes(files)
    assert files.contents(f"{link(partition_id)}/journal.lost") == b"records are lacking"


def test_a_lost_volume_is_forgotten_on_request_only() -> None:
    files = new_files()
    partition_id, disk = absent_partition(files)
    volumes = open_volumes(files)
    gone = next(each for each in volumes.states() if not each.present)
    assert gone.volume_id is not None
    with pytest.raises(StorageError, match="is not missing"):
        volumes.forget(volume_of(volumes, "/two"))
    with pytest.raises(StorageError, match="has no volume"):
        volumes.forget(uuid4())
    assert volumes.forget(gone.volume_id) == gone.partition_ids
    assert partition_id in gone.partition_ids
    assert volumes.absence(partition_id) is None
    assert b"is lost" in files.contents(f"{link(partition_id)}/journal.lost")
    volumes.close()
    open_volumes(files).close()  # its directory is a new volume now
    mount(files, "/one", disk)
    with pytest.raises(StorageError, match="does not know: it belongs to another storage node, or is an old copy"):
        open_volumes(files)


def test_a_volume_is_forgotten_as_a_whole_whatever_fails() -> None:
    for after in range(200):
        files = new_files()
        volumes = open_volumes(files)
        for partition_id in range(6):
            placed(volumes, files, partition_id)
        volumes.close()
        unmount(files, "/one")
        volumes = open_volumes(files)
        gone = next(each for each in volumes.states() if not each.present)
        assert gone.volume_id is not None
        files.fail(CrashNow(), after=after)
        with contextlib.suppress(CrashNow):
            volumes.forget(gone.volume_id)
        done = files.clear_fault()
        files.crash(random.Random(after))
        volumes = open_volumes(files)
        for partition_id in gone.partition_ids:
            lost = files.exists(f"{link(partition_id)}/journal.lost")
            assert (volumes.absence(partition_id) is None) == lost
        assert volumes.absent() in (frozenset(), frozenset(gone.partition_ids))
        if done:
            return
    raise AssertionError("to forget a volume takes more than 200 file calls")


# Directories that cannot be used


def test_a_directory_with_other_files_is_refused() -> None:
    files = new_files()
    files.make_directory("/one/lost+found")
    open_volumes(files).close()
    files.open("/two/x", create=True).close()
    files.remove(f"/two/{VOLUME_NAME}")
    with pytest.raises(StorageError, match=r"/two is not empty and has no volume.json \(x\)"):
        open_volumes(files)


def test_a_directory_of_another_cluster_is_refused() -> None:
    files = new_files()
    Volumes.open(files, "/one", ["/two"], OTHER_KEY).close()
    with pytest.raises(StorageError, match=f"/two is a volume of another cluster .key {OTHER_KEY}."):
        open_volumes(files, ["/two"])


def test_a_missing_directory_is_refused() -> None:
    with pytest.raises(StorageError, match="/three does not exist; create it or correct storage.directories"):
        open_volumes(new_files(), ["/three"])


@pytest.mark.parametrize("further", [["/one", "/one"], [FIRST]])
def test_a_directory_is_listed_once(further: list[str]) -> None:
    with pytest.raises(StorageError, match="is listed twice"):
        open_volumes(new_files(), further)


def test_a_volume_in_use_is_refused() -> None:
    files = new_files()
    open_volumes(files)
    with pytest.raises(StorageError, match="/one is in use by another storage node"):
        open_volumes(files)


def test_a_partition_in_two_places_is_refused() -> None:
    files = new_files()
    volumes = open_volumes(files)
    partition_id = next(each for each in range(10) if placed(volumes, files, each) == "/one")
    volumes.close()
    files.remove_directory(link(partition_id))
    files.make_directory(link(partition_id))
    with pytest.raises(StorageError, match="find out which of them is right, and move the other one away"):
        open_volumes(files)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "is damaged"),
        (b"[]", "is damaged"),
        (b'{"format": 2}', "has format 2, which this version does not know"),
        (b'{"format": 1, "more": 1}', "is damaged: more: Extra inputs"),
        (b'{"format": 1, "partitions": {"x": {}}}', "is damaged: partitions"),
        (b"{}", "is damaged: format: Field required"),
        (
            b'{"format": 1, "partitions": {"1": {"volume": "00000000-0000-0000-0000-000000000001"}}}',
            "is damaged: Value error, partition 1 is on volume 00000000-0000-0000-0000-000000000001",
        ),
    ],
)
def test_damaged_files_are_refused(content: bytes, text: str) -> None:
    files = new_files()
    file = files.open(f"{FIRST}/{VOLUMES_NAME}", create=True)
    file.write(0, [content])
    with pytest.raises(StorageError, match=text):
        open_volumes(files)


# Moves


def test_what_cannot_be_moved_is_told() -> None:
    files = new_files()
    partition_id, _ = absent_partition(files)
    volumes = open_volumes(files)
    with pytest.raises(StorageError, match=f"partition {partition_id} cannot be moved: volume .* is missing"):
        volumes.move(partition_id, "/two")
    with pytest.raises(StorageError, match="/three is none of the directories of the node; give one of /first, /two"):
        volumes.move(99, "/three")
    with pytest.raises(StorageError, match="partition 99 has no files in /first"):
        volumes.move(99, "/two")


def test_a_partition_is_moved_with_all_its_files(tmp_path: Path) -> None:
    first, one = tmp_path / "first", tmp_path / "one"
    first.mkdir()
    one.mkdir()
    with contextlib.closing(OsFiles()) as files:
        with contextlib.closing(Volumes.open(files, str(first), [str(one)], KEY)) as volumes:
            (first / "3").mkdir()
            content = random.Random(1).randbytes((2 << 20) + 17)
            (first / "3" / "a.seg").write_bytes(content)
            (first / "3" / "a.idx").touch()
            assert volumes.move(3, str(one)) == str(first)
            assert volumes.move(3, str(one)) is None
            assert (first / "3").readlink() == one / "3"
            assert (first / "3" / "a.seg").read_bytes() == content
            assert sorted(path.name for path in (one / "3").iterdir()) == ["a.idx", "a.seg"]
            assert volumes.move(3, str(first)) == str(one)
            assert not (first / "3").is_symlink()
            assert (first / "3" / "a.seg").read_bytes() == content
        assert sorted(path.name for path in one.iterdir()) == [VOLUME_NAME]
        names = sorted(path.name for path in first.iterdir())
        assert names == ["3", VOLUMES_NAME]
        assert json.loads((first / VOLUMES_NAME).read_text())["partitions"] == {}
