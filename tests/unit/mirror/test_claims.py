"""Which partitions are mirrors: claims and promotions in any order, and damaged nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.memory_zookeeper import MemoryZooKeeperServer
from waltz.common.zk.paths import ClusterPaths
from waltz.mirror.claims import Claim, Claims
from waltz.mirror.errors import MirrorError, OtherSourceError, PromotedError

ROOT = "/waltz"


@pytest.fixture
async def claims() -> Claims:
    zookeeper = await MemoryZooKeeperServer().connect()
    await zookeeper.create(ROOT, None)
    return Claims(zookeeper, ROOT)


async def test_the_first_mirror_decides_on_the_source(claims: Claims) -> None:
    assert await claims.read(0) is None
    await claims.check(0, "a")
    assert await claims.read(0) is None, "a check writes nothing"
    await claims.take(0, "a")
    await claims.take(0, "a")
    assert await claims.read(0) == Claim("a", promoted=False, sessions=2)
    for refused in (claims.check, claims.take):
        with pytest.raises(OtherSourceError, match="mirror of the cluster with the key a, and not of b"):
            await refused(0, "b")
    await claims.take(1, "b")


async def test_a_promotion_ends_it_until_it_is_taken_back(claims: Claims) -> None:
    await claims.take(0, "a")
    assert (await claims.promote(0)).promoted is False
    assert (await claims.promote(0)).promoted is True, "may be repeated"
    for refused in (claims.check, claims.take):
        with pytest.raises(PromotedError, match="partition 0 was promoted"):
            await refused(0, "a")
    await claims.resume(0)
    await claims.take(0, "a")
    assert await claims.read(0) == Claim("a", promoted=False, sessions=2)


async def test_what_never_was_a_mirror(claims: Claims) -> None:
    with pytest.raises(MirrorError, match="partition 0 is no mirror"):
        await claims.promote(0)
    with pytest.raises(MirrorError, match="partition 0 was not promoted"):
        await claims.resume(0)
    await claims.take(0, "a")
    with pytest.raises(MirrorError, match="partition 0 was not promoted"):
        await claims.resume(0)


async def test_a_promotion_between_the_look_and_the_claim_is_seen() -> None:
    """The node that the mirror has read is an old one: the write fails all the same."""
    zookeeper = await MemoryZooKeeperServer().connect()
    await zookeeper.create(ROOT, None)
    claims = Claims(zookeeper, ROOT)
    await claims.take(0, "a")
    path = ClusterPaths.of(ROOT).mirror(0)
    old = await zookeeper.get(path)

    class Stale:
        """A view of ZooKeeper that lags."""

        async def get(self, _path: str) -> object:
            return old

        def __getattr__(self, name: str) -> object:
            return getattr(zookeeper, name)

    await claims.promote(0)
    with pytest.raises(MirrorError, match="another process has changed"):
        await Claims(Stale(), ROOT).take(0, "a")  # type: ignore[arg-type]
    assert (await claims.read(0)) == Claim("a", promoted=True, sessions=1)


@given(st.text(), st.booleans(), st.integers(0, 1 << 40))
def test_encoding(source: str, promoted: bool, sessions: int) -> None:
    claim = Claim(source, promoted, sessions)
    assert Claim.decode(claim.encode()) == claim


@pytest.mark.parametrize(
    "data",
    [
        None,
        b"",
        b"{",
        b"[]",
        b"{}",
        b"\xff",
        b'{"source": 1, "promoted": false, "sessions": 0}',
        b'{"source": "a", "promoted": 0, "sessions": 0}',
        b'{"source": "a", "promoted": false, "sessions": true}',
        b'{"source": "a"}',
        b"[" * 100_000,
        b'{"source": "%s", "promoted": false, "sessions": 0}' % (5000 * b"a"),
    ],
)
def test_damaged_nodes_are_errors(data: bytes | None) -> None:
    with pytest.raises(MirrorError, match="claim of a mirror in ZooKeeper is damaged"):
        Claim.decode(data)
