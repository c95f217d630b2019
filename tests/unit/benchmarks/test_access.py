"""The bench of access rules: that its servers decide, that its rounds are paired, and what it prints."""

import json
from pathlib import Path

import pytest

from benchmarks.access import OFF, Server, Timing, accesses, count_lines, main, rules, time_lines, timed
from tests.counts.loads import Cost
from waltz.common.acl.document import Quota
from waltz.common.acl.enforcement import RuleAccess


async def test_the_servers_take_appends_by_their_rules_and_quotas() -> None:
    for name, access in accesses(8, 3).items():
        server = Server(access)
        for _ in range(3):
            assert await server.append(16) >= 0
        await server.close()
        if isinstance(access, RuleAccess):
            assert access.applied is not None
            assert bool(access.applied.rules.document.quotas) == (name == "quotas")
            assert len(access.applied.rules.document.rules) == 4


async def test_an_append_over_its_quota_is_noticed_and_not_timed() -> None:
    server = Server(rules(8, 0, [Quota("anonymous", "*", appends_per_s=1)]))
    with pytest.raises(RuntimeError, match="of 16 appends"):
        for _ in range(10):
            await server.append(16)
    await server.close()


async def test_every_server_is_timed() -> None:
    found = await timed(16, 3, rounds=2, batches=2)
    assert list(found) == [OFF, "enforce", "quotas"]
    assert found[OFF].more_percent == 0.0


def test_what_is_printed() -> None:
    timings = {OFF: Timing(2.0, 0.0, 0.0), "enforce": Timing(2.1, 5.0, 0.52)}
    assert time_lines(16, timings) == [
        "16 in flight: processor time of an append from the read to its place in the order",
        "  off       2.000 µs",
        "  enforce   2.100 µs  +5.0 % (± 0.5)",
    ]
    costs = {
        OFF: Cost({"server": {"calls": 100.0}}, {"server": {"f": 100.0}}),
        "enforce": Cost({"server": {"calls": 101.0}}, {"server": {"f": 100.0, "g": 1.0}}),
    }
    text = "\n".join(count_lines(16, costs))
    assert "  enforce         101         +1\n" in text
    assert "g 0 -> 1" in text


def test_the_command(tmp_path: Path) -> None:
    shown: list[str] = []
    path = tmp_path / "results.json"
    words = [
        "--rounds",
        "1",
        "--appends",
        "16",
        "--in-flight",
        "16",
        "--rules",
        "2",
        "--no-counts",
        "--json",
        str(path),
    ]
    main(words, shown.append)
    assert shown[-1].startswith("load of the machine (1 min): ")
    results = json.loads(path.read_text())
    assert results["times"]["16"].keys() == {"off", "enforce", "quotas"}
    assert results["calls"] == {}


@pytest.mark.deep
def test_calls_are_counted_in_a_simulated_cluster() -> None:
    """The rules cost a few calls for each read of many appends, and a quota one more for each append."""
    shown: list[str] = []
    main(["--rounds", "1", "--appends", "16", "--in-flight", "16", "--rules", "2"], shown.append)
    assert "waltz.common.acl.enforcement.Row.refusal 0 -> " in shown[0]
    assert "waltz.common.acl.throttling.PrincipalThrottle.take 0 -> " in shown[0]
