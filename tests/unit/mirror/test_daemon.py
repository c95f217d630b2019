"""What a mirror says of its health, and which configurations it refuses."""

from pathlib import Path

import pytest
import yaml

from waltz.common.config.schemas import MirrorConfig, load
from waltz.common.errors import ConfigError
from waltz.mirror.daemon import cluster_problems, health
from waltz.mirror.lag import Lag
from waltz.mirror.mirror_metrics import MirrorState, PartitionState, Stage

GOOD = {Stage.WORKING, Stage.STANDING_BY, Stage.PROMOTED}


def state(*stages: Stage) -> MirrorState:
    return MirrorState({number: PartitionState(stage) for number, stage in enumerate(stages)})


@pytest.mark.parametrize("stage", Stage)
def test_healthy_while_all_is_as_it_should_be(stage: Stage) -> None:
    assert health(state(Stage.WORKING, stage), 0, 1000)[0] == (stage in GOOD)


def test_late_is_not_healthy() -> None:
    found = state(Stage.WORKING, Stage.STANDING_BY)
    for each in found.partitions.values():
        each.lag = Lag(5, 1000)
    assert health(found, 2000, 1000)[0]
    healthy, document = health(found, 2001, 1000)
    assert not healthy
    assert isinstance(document, dict)
    check = document["mirror-health-check"]
    assert isinstance(check, dict)
    assert isinstance(check["partitions"], dict)
    assert check["partitions"]["0"] == {
        "state": "is mirrored",
        "reason": "",
        "mirrored": None,
        "lag_transactions": 5,
        "lag_ms": 1001,
    }
    found.partitions[0].stage = Stage.PROMOTED
    assert health(found, 9000, 1000)[0], "the lags of others are theirs"


def test_a_cluster_that_is_away_is_not_healthy() -> None:
    found = state(Stage.WORKING)
    found.is_source_available = False
    assert not health(found, 0, 1000)[0]
    found.is_source_available = True
    found.trouble = "the source cannot be reached"
    assert not health(found, 0, 1000)[0]
    assert not found.is_target_available


def mirror_file(directory: Path, **keys: object) -> Path:
    path = directory / "mirror.yml"
    path.write_text(yaml.safe_dump({f"mirror.{key}": value for key, value in keys.items()}))
    return path


def test_the_files_of_the_clusters_are_checked(tmp_path: Path) -> None:
    client = tmp_path / "client.yml"
    client.write_text(yaml.safe_dump({"zookeeper.connectString": "zoo:2181", "cluster.root": "/waltz"}))
    good = load(mirror_file(tmp_path, source=str(client), target=str(client)), MirrorConfig)
    assert cluster_problems(good, "mirror.yml") == []
    bad = load(mirror_file(tmp_path, source=str(tmp_path / "none"), target=str(client)), MirrorConfig)
    (problem,) = cluster_problems(bad, "mirror.yml")
    assert problem.startswith("mirror.source: ")


def test_lists_of_partitions(tmp_path: Path) -> None:
    config = load(mirror_file(tmp_path, source="a", target="b", partitions="3,0-1"), MirrorConfig)
    assert config.partition_ids == [0, 1, 3]
    assert load(mirror_file(tmp_path, source="a", target="b"), MirrorConfig).partition_ids is None
    with pytest.raises(ConfigError, match="not a list of partitions like 0-6,7,10-16: 'all'"):
        load(mirror_file(tmp_path, source="a", target="b", partitions="all"), MirrorConfig)


def test_tables_are_among_the_partitions(tmp_path: Path) -> None:
    config = load(mirror_file(tmp_path, source="a", target="b", partitions="0-3", tables="1,3"), MirrorConfig)
    assert config.table_ids == [1, 3]
    assert load(mirror_file(tmp_path, source="a", target="b"), MirrorConfig).table_ids == []
    assert load(mirror_file(tmp_path, source="a", target="b", tables="7"), MirrorConfig).table_ids == [7]
    with pytest.raises(ConfigError, match="not in mirror.partitions"):
        load(mirror_file(tmp_path, source="a", target="b", partitions="0-3", tables="3-4"), MirrorConfig)
    with pytest.raises(ConfigError):
        load(mirror_file(tmp_path, source="a", target="b", tables="all"), MirrorConfig)
