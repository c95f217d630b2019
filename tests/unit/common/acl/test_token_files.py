"""The keys of tokens and the withdrawn ones are read again; the library is needed by who takes tokens only."""

import asyncio
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from tests.unit.common.acl.tokens import AUDIENCE, described, token, write_keys
from waltz.common.acl.audit import Audit
from waltz.common.acl.node import start_identities
from waltz.common.config.schemas import AclConfig
from waltz.common.errors import ConfigError, WaltzError
from waltz.common.metrics.registry import Registry
from waltz.common.net import followed_files
from waltz.common.net.token_gate import Identities

OTHER = ec.generate_private_key(ec.SECP256R1())


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed_files, "CHECK_INTERVAL_S", 0.001)


def config(tmp_path: Path) -> AclConfig:
    write_keys(tmp_path / "keys", described("ES256", "one"))
    (tmp_path / "withdrawn").write_text("gone\n")
    return AclConfig(enabled=True, token_keys=str(tmp_path / "keys"), withdrawn_tokens=str(tmp_path / "withdrawn"))


def replace(path: Path, text: str) -> None:
    new = path.with_name("new")
    new.write_text(text)
    os.replace(new, path)


def accepts(rules: Identities, text: str) -> bool:
    try:
        rules.verify(text)
    except WaltzError:
        return False
    return True


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_keys_and_withdrawals_are_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    registry = Registry()
    tokens = start_identities(config(tmp_path), AUDIENCE, registry, Audit("", 0))
    unusable = registry.readings["waltz_acl_token_files_unusable"]
    assert list(unusable()) == [((), 0)]
    checks: list[int] = []
    tokens.identities.check_all = lambda: checks.append(1)  # type: ignore[method-assign]
    try:
        first, second = token(key_id="one"), token(key_id="two", private=OTHER)
        assert [accepts(tokens.identities, text) for text in (first, second)] == [True, False]
        write_keys(tmp_path / "new", described("ES256", "one"), described("ES256", "two", OTHER))
        os.replace(tmp_path / "new", tmp_path / "keys")
        await until(lambda: accepts(tokens.identities, second))
        assert accepts(tokens.identities, first)
        replace(tmp_path / "withdrawn", "gone\nt-1\n")
        await until(lambda: not accepts(tokens.identities, first))
        await until(lambda: len(checks) == 2)
        replace(tmp_path / "keys", "{}")
        await until(lambda: "the former keys and withdrawals hold on" in caplog.text)
        assert accepts(tokens.identities, token(key_id="two", private=OTHER, jti="t-2"))
        assert list(unusable()) == [((), 1)]
        assert len(checks) == 2
    finally:
        await tokens.close()


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [("keys", b"{}", "no JSON Web Key Set"), ("keys", b"\xff", "is no text"), ("withdrawn", None, "No such file")],
)
async def test_a_node_does_not_start_without_usable_files(
    tmp_path: Path, name: str, content: bytes | None, reason: str
) -> None:
    found = config(tmp_path)
    if content is None:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=reason):
        start_identities(found, AUDIENCE, Registry(), Audit("", 0))


async def test_a_node_without_keys_takes_no_tokens() -> None:
    tokens = start_identities(AclConfig(enabled=True), AUDIENCE, Registry(), Audit("", 0))
    with pytest.raises(WaltzError, match=r"acl.tokens.keys is not set"):
        tokens.identities.verify(token())
    await tokens.close()


async def test_without_the_library_keys_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("waltz.common.acl.tokens", "waltz.common.acl.token_files"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "jwt", None)
    with pytest.raises(ConfigError, match=r"PyJWT: pip install 'waltz-log\[acl\]'"):
        start_identities(config(tmp_path), AUDIENCE, Registry(), Audit("", 0))
