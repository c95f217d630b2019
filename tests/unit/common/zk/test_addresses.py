"""Addresses of clusters that are none."""

import pytest

from waltz.common.config.schemas import CliConfig, TlsConfig
from waltz.common.zk.addresses import address_problems


@pytest.mark.parametrize(
    "connect_string",
    ["zk", "zk:2181", "zk-1:2181,zk-2:2181,10.0.0.1:2181", "zk-1:2181, zk-2:2181/chroot", "[::1]:2181", "zk:2181/"],
)
def test_addresses(connect_string: str) -> None:
    config = CliConfig(zookeeper_connect_string=connect_string, cluster_root="/waltz")
    assert address_problems(config, "x.yml") == []
    assert address_problems(TlsConfig(), "x.yml") == []


@pytest.mark.parametrize(
    ("connect_string", "what"),
    [
        ("zk:99999", "Port out of range 0-65535"),
        ("zk:x", "Port could not be cast to integer value as 'x'"),
        (",", "bad hostname"),
        ("/waltz", "bad hostname"),
    ],
)
def test_what_is_none(connect_string: str, what: str) -> None:
    config = CliConfig(zookeeper_connect_string=connect_string, cluster_root="/")
    assert address_problems(config, "x.yml") == [
        f"x.yml: zookeeper.connectString {connect_string!r} is not host:port,host:port,...: {what}",
        "x.yml: cluster.root must be an absolute ZooKeeper path such as /waltz, not '/'",
    ]
