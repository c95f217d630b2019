"""Files that a configuration names: what can be told of them before the start."""

from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.unit.common.net.certificates import Authority, write_pem, write_pkcs12
from waltz.common.config.schemas import CliConfig, ClientConfig, ServerConfig, StorageConfig, from_mapping
from waltz.common.net.config_files import file_problems

CLUSTER = {"zookeeper.connectString": "zk:1", "zookeeper.sessionTimeout": 1, "cluster.root": "/w"}
NODES: dict[str, type[BaseModel]] = {
    "server.ssl": ServerConfig,
    "storage.ssl": StorageConfig,
    "client.ssl": ClientConfig,
    "ssl": CliConfig,
}


def problems(tls: str, directory: Path, **keys: object) -> list[str]:
    mapping = {
        **CLUSTER,
        "server.port": 1,
        "server.host": "here",
        "storage.port": 1,
        "storage.admin.port": 2,
        "storage.directory": str(directory),
        **{f"{tls}.{key.replace('__', '.')}": value for key, value in keys.items()},
    }
    return file_problems(from_mapping(mapping, NODES[tls]), "x.yml")


@pytest.fixture
def key_store(authority: Authority, tmp_path: Path) -> str:
    return write_pkcs12(tmp_path / "node.p12", authority.issue("127.0.0.1"), [authority.certificate], "right")


@pytest.mark.parametrize("tls", NODES)
def test_files_that_can_be_used(tls: str, key_store: str, trust_pem: str, tmp_path: Path) -> None:
    before = sorted(tmp_path.iterdir())
    assert problems(tls, tmp_path) == []
    assert problems(tls, tmp_path, plaintext=True, keyStore__location="/nowhere") == []
    stores = {"keyStore__location": key_store, "keyStore__password": "right", "trustStore__location": trust_pem}
    assert problems(tls, tmp_path, **stores) == []
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("tls", NODES)
def test_key_stores_that_cannot_be_used(tls: str, key_store: str, tmp_path: Path) -> None:
    absent = problems(tls, tmp_path, keyStore__location="/no/such/key.p12")
    assert absent == [f"x.yml: {tls}: cannot read keyStore /no/such/key.p12: No such file or directory"]
    wrong = problems(tls, tmp_path, keyStore__location=key_store, keyStore__password="wr0ng")
    assert wrong == [f"x.yml: {tls}: keyStore {key_store} cannot be decrypted: wrong keyStore.password or damaged file"]
    assert problems(tls, tmp_path, keyStore__location=key_store) == [
        f"x.yml: {tls}: keyStore.password is missing for the PKCS#12 file {key_store}"
    ]


@pytest.mark.parametrize("tls", NODES)
def test_trust_stores_that_cannot_be_used(tls: str, authority: Authority, tmp_path: Path) -> None:
    encrypted = write_pem(tmp_path / "node.pem", authority.issue("127.0.0.1"), [], "secret")
    assert problems(tls, tmp_path, keyStore__location=encrypted, trustStore__location=str(tmp_path)) == [
        f"x.yml: {tls}: keyStore.password is missing for the encrypted key in {encrypted}"
    ]
    assert problems(tls, tmp_path, trustStore__location=str(tmp_path)) == [
        f"x.yml: {tls}: cannot read trustStore {tmp_path}: Is a directory"
    ]


@pytest.mark.parametrize("tls", ["client.ssl", "ssl"])
def test_files_of_tokens(tls: str, trust_pem: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    given = {"trustStore__location": trust_pem, "token__location": str(path)}
    assert problems(tls, tmp_path, **given) == [
        f"x.yml: {tls}: cannot read the token of {path}: No such file or directory"
    ]
    path.write_text("\n")
    assert problems(tls, tmp_path, **given) == [f"x.yml: {tls}: {path} holds no token"]
    path.write_text("a.b.c\n")
    assert problems(tls, tmp_path, **given) == []


@pytest.mark.parametrize(("tls", "number"), [("server.ssl", 1), ("storage.ssl", 0), ("client.ssl", 1), ("ssl", 1)])
def test_names_are_checked_by_those_that_connect(tls: str, number: int, tmp_path: Path) -> None:
    assert len(problems(tls, tmp_path, checkHostname=True)) == number


def test_the_directory(tmp_path: Path) -> None:
    absent, file = tmp_path / "absent", tmp_path / "file"
    file.touch()
    assert problems("storage.ssl", absent) == [
        f"x.yml: storage.directory {absent} does not exist; make the directory, owned by the user that runs the node"
    ]
    assert problems("storage.ssl", file) == [f"x.yml: storage.directory {file} is not a directory"]
    assert problems("server.ssl", absent) == []


def test_a_directory_of_somebody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert problems("storage.ssl", tmp_path / "file" / "below") == [
        f"x.yml: storage.directory {tmp_path}/file/below cannot be read: Not a directory"
    ]
    assert problems("storage.ssl", Path("/nul\0")) == [
        "x.yml: storage.directory /nul\\x00 cannot be read: embedded null byte"
    ]
    monkeypatch.setattr("os.access", lambda *_: False)  # root may write everywhere
    assert problems("storage.ssl", tmp_path) == [
        f"x.yml: storage.directory {tmp_path}: Permission denied; this user has to read and write it"
    ]
