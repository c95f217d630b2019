from pathlib import Path
from uuid import UUID

import pytest

from waltz.spark import staging
from waltz.spark.errors import SinkError, SinkFencedError
from waltz.spark.rows import Row
from waltz.spark.staging import LogIdentity, Manifest, StagedFile, StagingArea, partitions_of


@pytest.fixture
def area(tmp_path: Path) -> StagingArea:
    return StagingArea(str(tmp_path), "my/app")


def stage(area: StagingArea, rows: list[tuple[int, Row]]) -> StagedFile:
    stager = area.writer()
    for partition_id, row in rows:
        stager.add(partition_id, row)
    file = stager.finish()
    assert file is not None
    return file


def test_rows_come_back_by_partition_in_order(area: StagingArea, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_PIECE_BYTES", 200)
    rows = [(index % 3, Row(-index, b"%d" % index * (index % 5))) for index in range(100)]
    files = (stage(area, rows[:60]), stage(area, rows[60:]))
    assert len(files[0].pieces) > 3
    manifest = Manifest(files, {0: 5, 1: 6, 2: -1})
    assert partitions_of(files) == [0, 1, 2]
    for wanted in range(4):
        assert list(area.rows(manifest, wanted)) == [row for partition_id, row in rows if partition_id == wanted]


def test_memory_of_a_task_is_bounded(area: StagingArea, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_GATHERED_BYTES", 100)
    file = stage(area, [(partition_id, Row(0, bytes(20))) for partition_id in range(50)])
    assert len(file.pieces) == 50
    assert partitions_of([file]) == list(range(50))


def test_no_rows_make_no_file(area: StagingArea, tmp_path: Path) -> None:
    assert area.writer().finish() is None
    assert list((tmp_path / "my%2Fapp" / "rows").iterdir()) == []


def test_a_task_that_fails_leaves_nothing(area: StagingArea, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "_PIECE_BYTES", 1)
    stager = area.writer()
    stager.add(0, Row(0, b"x"))
    assert len(list((tmp_path / "my%2Fapp" / "rows").iterdir())) == 1
    stager.abandon()
    assert list((tmp_path / "my%2Fapp" / "rows").iterdir()) == []


def test_rows_that_are_gone_or_damaged_are_an_error(area: StagingArea, tmp_path: Path) -> None:
    file = stage(area, [(0, Row(0, b"x"))])
    manifest = Manifest((file,), {0: -1})
    path = tmp_path / "my%2Fapp" / "rows" / file.name
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(SinkError, match="staged rows cannot be read: "):
        list(area.rows(manifest, 0))
    path.unlink()
    with pytest.raises(SinkError, match="staged rows cannot be read: "):
        list(area.rows(manifest, 0))


def test_the_first_manifest_wins(area: StagingArea) -> None:
    assert area.manifest(3) is None
    first = Manifest((StagedFile("a", ((0, 2), (1, 1))),), {0: 7, 1: -1})
    assert area.propose(3, first)
    assert not area.propose(3, Manifest((), {}))
    assert area.manifest(3) == first
    assert area.manifest(4) is None


def test_a_manifest_that_is_none_is_an_error(area: StagingArea, tmp_path: Path) -> None:
    assert area.propose(0, Manifest((), {}))
    (tmp_path / "my%2Fapp" / "epochs" / "0" / "manifest.json").write_text("{}")
    with pytest.raises(SinkError, match="is not a manifest"):
        area.manifest(0)


def test_every_claim_knows_those_before_it(area: StagingArea) -> None:
    area.propose(0, Manifest((), {}))
    first, second = area.claims(0, 11), area.claims(0, 22)
    assert not first.claim()
    assert first.client_ids == {11}
    assert first.claim()
    assert second.claim()
    assert second.client_ids == {11, 22}
    with pytest.raises(SinkFencedError):
        first.claim()
    assert second.claim()


def test_a_claim_on_an_epoch_that_is_gone(area: StagingArea) -> None:
    with pytest.raises(FileNotFoundError):
        area.claims(0, 1).claim()


def test_done_is_done_with_all_before(area: StagingArea, tmp_path: Path) -> None:
    assert not area.is_done(0)
    files = []
    for epoch in (4, 5):
        file = stage(area, [(0, Row(0, b"x"))])
        files.append(file.name)
        area.propose(epoch, Manifest((file,), {0: -1}))
        area.complete(epoch)
    assert area.is_done(5)
    assert area.is_done(0)
    assert not area.is_done(6)
    area.complete(4)
    assert area.is_done(5)
    root = tmp_path / "my%2Fapp"
    assert [path.name for path in (root / "rows").iterdir()] == files[1:]
    assert [path.name for path in (root / "epochs").iterdir()] == ["5"]
    area.remove()
    assert not root.exists()


HERE, ELSEWHERE = LogIdentity(UUID(int=1), "waltz"), LogIdentity(UUID(int=2), "waltz")


def test_a_directory_is_for_one_log(area: StagingArea, tmp_path: Path) -> None:
    area.complete(7)
    area.bind(HERE)
    StagingArea(str(tmp_path), "my/app").bind(HERE)
    assert area.is_done(7)
    for other in (ELSEWHERE, HERE._replace(format="waltz-table")):
        with pytest.raises(SinkError, match=r"belongs to format waltz on .*0001, .* give it another txnAppId"):
            area.bind(other)
    StagingArea(str(tmp_path), "another app").bind(ELSEWHERE)


def test_a_directory_is_for_one_query(area: StagingArea, tmp_path: Path) -> None:
    mine, unknown = HERE._replace(query="mine"), HERE
    assert area.bind(mine)
    assert area.bind(mine)
    assert not area.bind(unknown)
    with pytest.raises(SinkError, match=r"for the query mine, .* for the query another; give it another txnAppId"):
        area.bind(HERE._replace(query="another"))
    nobodys = StagingArea(str(tmp_path), "nobody's")
    assert not nobodys.bind(unknown)
    assert not nobodys.bind(mine)


def test_of_two_logs_at_a_time_the_first_has_the_directory(area: StagingArea, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = staging._publish

    def come_second(path: Path, content: bytes) -> bool:
        assert publish(path, HERE.encode())
        return publish(path, content)

    monkeypatch.setattr(staging, "_publish", come_second)
    with pytest.raises(SinkError, match="belongs to"):
        area.bind(ELSEWHERE)
    area.bind(HERE)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cluster_key": 5, "format": "waltz"}'])
def test_a_log_that_is_none_is_an_error(area: StagingArea, tmp_path: Path, content: str) -> None:
    area.bind(HERE)
    (tmp_path / "my%2Fapp" / "log.json").write_text(content)
    with pytest.raises(SinkError, match="does not say which log"):
        area.bind(HERE)


def test_names_that_no_directory_can_have(tmp_path: Path) -> None:
    for app_id in ("x" * 300, ".", ".."):
        with pytest.raises(SinkError, match="cannot be the name of a directory"):
            StagingArea(str(tmp_path), app_id)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SinkError, match="check the option stagingPath"):
        StagingArea(str(tmp_path / "file"), "app").writer()
