"""``waltz zookeeper protect`` without a cluster: its options, and the file of users."""

import logging
from pathlib import Path

import pytest

from waltz.cli.main import main
from waltz.cli.protecting import read_users
from waltz.common.errors import WaltzError
from waltz.common.zk.protection import Role, identity_of

GOOD = "a-password-of-16+"


def written(directory: Path, text: str) -> Path:
    path = directory / "users.yml"
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_file_of_users(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path, f"admin: {{ops: {GOOD}}}\nclient:\n  svc.a: {GOOD}1\n  svc-b: '{GOOD}2'\n")
    protection = read_users(path, with_original_nodes=True)
    assert protection.users == {
        Role.ADMIN: (identity_of("ops", GOOD),),
        Role.CLIENT: (identity_of("svc.a", f"{GOOD}1"), identity_of("svc-b", f"{GOOD}2")),
    }
    assert protection.with_original_nodes
    assert not caplog.records
    path.chmod(0o644)
    with caplog.at_level(logging.WARNING):
        assert read_users(path) == protection._replace(with_original_nodes=False)
    assert f"can be read by others: chmod 600 {path}" in caplog.text
    assert GOOD not in caplog.text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "no user with the role admin"),
        (f"boss: {{ops: {GOOD}}}", "boss is not a role; the roles are server, storage, client, enforcer, admin"),
        (f"admin: {GOOD}", "admin needs lines of the form 'name: password' below it"),
        ("admin: {ops: short-password!}", "the password of ops has fewer than 16 characters"),
        (f"admin: {{ops: ' {GOOD}'}}", "blanks around it"),
        ("admin: {ops: 1234567890123456}", "the password of ops is not text; put it in quotes"),
        (f"admin: {{'o:ps': {GOOD}}}", "without colons and blanks"),
        (f"admin: {{ops: {GOOD}}}\nclient: {{ops: {GOOD}}}", "user ops is in two roles: admin and client"),
        (f"admin: {{ops: {GOOD}, ops: {GOOD}}}", "key 'ops' is given twice"),
    ],
)
def test_files_that_cannot_be_used(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(WaltzError) as refused:
        read_users(written(tmp_path, text))
    assert why in str(refused.value)
    assert GOOD not in str(refused.value)
    assert "short-password!" not in str(refused.value)
    assert "1234567890123456" not in str(refused.value)


@pytest.mark.parametrize("arguments", [[], ["--check", "--open"], ["--users", "file", "--check"]])
def test_what_is_to_be_done_is_said_once(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["zookeeper", "protect", *arguments])
    assert ended.value.code == 2
    assert "--users" in capsys.readouterr().err
