"""The check of a node's configuration finds what its start would."""

from pathlib import Path

import pytest

from tests.unit.common.acl.tokens import described, write_keys
from waltz.common.acl.config_problems import access_problems
from waltz.common.config.schemas import CliConfig, StorageConfig, from_mapping

CLUSTER = {"zookeeper.connectString": "zk", "zookeeper.sessionTimeout": 1000, "cluster.root": "/waltz"}
STORAGE = {**CLUSTER, "storage.port": 1, "storage.admin.port": 2, "storage.directory": "/storage"}


def problems(given: dict[str, object], *, enabled: bool = True) -> list[str]:
    keys = {"ssl.trustStore.location": "/trust", "acl.enabled": enabled, **given}
    config = from_mapping({**STORAGE, **{f"storage.{key}": value for key, value in keys.items()}}, StorageConfig)
    return access_problems(config, "storage.yml")


def test_nothing_is_wrong(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys", described("ES256"))
    assert problems({}) == []
    assert problems({"acl.tokens.keys": keys, "acl.principalFrom": "uri"}) == []
    assert problems({"acl.principalFrom": "nonsense"}, enabled=False) == []
    assert access_problems(from_mapping({**CLUSTER}, CliConfig), "cli.yml") == []


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"acl.principalFrom": "email"}, "storage.yml: acl.principalFrom: 'email' is no list of some of"),
        ({"acl.principalMapping": "nonsense"}, "storage.yml: acl.principalMapping: 'nonsense' is neither DEFAULT nor"),
        ({"acl.superPrincipals": "anonymous"}, "storage.yml: acl.superPrincipals: peers without a certificate"),
        ({"acl.tokens.keys": "/absent"}, "storage.yml: cannot read /absent: No such file or directory"),
        (
            {"acl.tokens.keys": "/absent", "acl.tokens.algorithms": "none"},
            "storage.yml: acl.tokens.algorithms: 'none' is no algorithm for tokens",
        ),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, object], problem: str) -> None:
    [found] = problems(given)
    assert found.startswith(problem)
