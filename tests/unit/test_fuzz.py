"""Every decoder against damaged input, a little of what ``make fuzz`` does for long; and what fuzzing has found."""

import logging
import tracemalloc
from collections.abc import Iterator

import hypothesis
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.file_targets import KEY
from tests.fuzz.mutations import INTERESTING, damaged
from tests.fuzz.targets import TARGETS
from waltz.common.wire.frames import CLIENT_SERVER, FRAME_HEADER

QUICK = settings(
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

MEMORY_LIMIT_BYTES = 16 << 20
"""What no input of a few kilobytes may make a decoder take."""

MIB = 1 << 20


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Damage is logged, as it should be: thousands of times here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_are_taken(name: str) -> None:
    for seed in TARGETS[name].seeds():
        assert len(seed) <= TARGETS[name].max_input_bytes
        TARGETS[name].check(seed)


@pytest.mark.parametrize("part", [1, *(pytest.param(part, marks=pytest.mark.deep) for part in (2, 3, 4))])
@pytest.mark.parametrize("name", TARGETS)
def test_damaged_input_is_refused_and_nothing_else_happens(name: str, part: int) -> None:
    check = TARGETS[name].check
    quarter = settings(QUICK, max_examples=QUICK.max_examples // 4)
    hypothesis.seed(part)(quarter(given(damaged(TARGETS[name].seeds()))(check)))()


@pytest.mark.parametrize("examples", [15, pytest.param(60, marks=pytest.mark.deep)])
@pytest.mark.parametrize("name", TARGETS)
def test_lying_numbers_take_no_memory(name: str, examples: int) -> None:
    """Counts and lengths that promise far more than there is, at every place of a seed."""
    target = TARGETS[name]
    seeds = sorted(set(target.seeds()), key=len)[-3:]
    for seed in seeds:
        target.check(seed)

    @settings(QUICK, max_examples=examples)
    @given(st.sampled_from(seeds), st.integers(0, 400), st.sampled_from(INTERESTING))
    def check(seed: bytes, position: int, number: int) -> None:
        data = seed[:position] + (number & 0xFFFFFFFF).to_bytes(4, "big") + seed[position + 4 :]
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        target.check(data)
        assert tracemalloc.get_traced_memory()[1] - before < MEMORY_LIMIT_BYTES

    tracemalloc.start()
    try:
        check()
    finally:
        tracemalloc.stop()


LAUGHS = b"\n".join(
    [
        b"\0a0: &a0 {x: 1}",
        *(b"a%d: &a%d {p: *a%d, q: *a%d}" % (level, level, level - 1, level - 1) for level in range(1, 40)),
    ]
)
MERGES = b"\n".join(
    [
        b"\0a0: &a0 {x: 1}",
        *(b"a%d: &a%d {<<: [*a%d, *a%d]}" % (level, level, level - 1, level - 1) for level in range(1, 40)),
    ]
)
LISTS = b"\n".join(
    [b"\0a0: &a0 [x]", *(b"a%d: &a%d [*a%d, *a%d]" % (level, level, level - 1, level - 1) for level in range(1, 40))]
)

REST = b"zookeeper.connectString: zk\nzookeeper.sessionTimeout: 1\ncluster.root: /waltz\n"

FINDINGS = {
    "a control file that tells of two billion partitions": (
        "control-file",
        b"\0" + bytes(28) + b"\x7f\xff\xff\xff" + bytes(200),
    ),
    "a control file whose sequence numbers are used up": (
        "control-file",
        b"\3"
        + bytes(12)
        + KEY.bytes
        + b"\0\0\0\2"
        + bytes(96)
        + 4 * (bytes(28) + b"\0\0\0\5" + b"\x7f\xff\xff\xff" + bytes(8)),
    ),
    "a fence file whose sequence numbers are used up": (
        "fence-file",
        b"\1" + bytes(12) + KEY.bytes + b"\0\0\0\2" + bytes(96) + 4 * (bytes(8) + b"\x7f\xff\xff\xff" + bytes(4)),
    ),
    "a note of an orderly stop that holds no numbers": (
        "clean-stop",
        b'\1{"cluster":"%s","partitions":{"0":[1,2,3,"4",5,6,7,null]}}' % str(KEY).encode(),
    ),
    "a note of an orderly stop that is nested without end": ("clean-stop", b"\1" + b"[" * 100_000),
    "aliases of aliases": ("config", LAUGHS),
    "merges of merges": ("config", MERGES),
    "lists of lists where a number is expected": ("config", LISTS + b"\nserver.port: *a39\n" + REST),
    "an alias of itself": ("config", b"\0a: &a {b: *a}\n"),
    "brackets without end": ("config", b"\0" + b"[" * 5000),
    "a date that does not exist": ("config", b"\0a: 2001-13-45\n"),
    "a number that is none": ("config", b"\0server.port: !!int _\n"),
    "a number that is too long to be read": ("config", b"\0server.port: " + b"9" * 5000),
    "a number that is too long to be written": ("config", b"\0server.port: 0x" + b"f" * 5000 + b"\n" + REST),
    "a key that is too long to be written": ("config", b"\0? 0x" + b"f" * 5000 + b"\n: 1\n"),
    "a key with line ends given twice": ("config", b'\0"a\\nb": 1\n"a\\nb": 2\n'),
}


@pytest.mark.parametrize(("name", "data"), FINDINGS.values(), ids=FINDINGS)
@pytest.mark.timeout(30)
def test_what_was_found(name: str, data: bytes) -> None:
    TARGETS[name].check(data)


def test_a_length_field_reserves_nothing() -> None:
    """The largest frame there can be, of which a little comes."""
    header = FRAME_HEADER.pack(CLIENT_SERVER.magic, 4, (1 << 16) - 1)
    tracemalloc.start()
    try:
        for step in (0, 1, 200):
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            TARGETS["frames"].check(bytes([step]) + header + bytes(3000))
            assert tracemalloc.get_traced_memory()[1] - before < MIB
    finally:
        tracemalloc.stop()
