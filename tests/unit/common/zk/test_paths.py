import pytest

from waltz.common.errors import ConfigError
from waltz.common.zk.paths import ClusterPaths


def test_paths() -> None:
    paths = ClusterPaths.of("/a/b")
    assert paths.root == "/a/b"
    assert paths.server_descriptor("s_1") == f"{paths.server_descriptors}/s_1" == "/a/b/serverDescriptors/s_1"
    assert (paths.ids, paths.client_ids, paths.server_ids) == ("/a/b/ids", "/a/b/ids/client", "/a/b/ids/server")
    assert paths.admin_lock == f"{paths.store}/adminLock" == "/a/b/store/adminLock"
    assert [paths.group, paths.assignment, paths.connection, paths.partitions] == [
        f"/a/b/store/{name}" for name in ("group", "assignment", "connection", "partition")
    ]
    assert paths.partition(12) == "/a/b/store/partition/12"


@pytest.mark.parametrize("root", ["", "/", "a", "a/b", "/a/", "//a", "/a//b", " /a", "/a ", "/a/./b", "/a/.."])
def test_impossible_roots(root: str) -> None:
    with pytest.raises(ConfigError, match=r"^cluster\.root must be an absolute ZooKeeper path"):
        ClusterPaths.of(root)
