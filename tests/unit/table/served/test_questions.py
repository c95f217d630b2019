"""Requests: what is written is read again; pages follow each other without gap or repetition; foreign ones end."""

import base64
import json
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.table.envelope import Row
from waltz.table.errors import EnvelopeError
from waltz.table.rows import Version, row_key
from waltz.table.served.questions import (
    MAX_KEYS,
    MAX_RANGES,
    MAX_TAKEN,
    MAX_TIMEOUT_MS,
    Condition,
    GetQuestion,
    Place,
    ReadMode,
    ScanQuestion,
    TakeQuestion,
    WriteQuestion,
    bytes_in,
    get_question,
    number,
    place_of,
    query_of,
    read_mode,
    scan_of_query,
    scan_question,
    sweep_question,
    take_of_query,
    write_question,
)
from waltz.table.served.texts import MessageError, line_of, parsed
from waltz.table.view import KeyRange

SHORT = st.binary(max_size=3)
RANGES = st.builds(KeyRange, SHORT, SHORT, st.none() | SHORT, st.none() | SHORT)
SCANS = st.builds(
    ScanQuestion,
    st.none() | st.lists(RANGES, min_size=1, max_size=3),
    st.booleans(),
    st.none() | st.integers(1, 1000),
    st.booleans(),
    st.booleans(),
    st.none() | st.builds(Place, st.text(max_size=3), st.integers(-1, 9), st.just(0), SHORT),
)
WRITTEN = st.builds(
    lambda prefix, key, value, timestamp_ms, dead: Row(prefix, key, None if dead else value, timestamp_ms, dead),
    SHORT,
    SHORT,
    st.none() | SHORT,
    st.none() | st.integers(1, 1 << 62),
    st.booleans(),
)


@given(SHORT, st.lists(SHORT, max_size=5), st.booleans())
def test_gets_come_back(prefix: bytes, keys: list[bytes], raw: bool) -> None:
    question = GetQuestion([(prefix, key) for key in keys], raw)
    assert get_question(parsed(line_of(question.message()))) == question


@given(st.lists(st.tuples(SHORT, SHORT), max_size=5), st.booleans())
def test_gets_of_several_prefixes_come_back(pairs: list[tuple[bytes, bytes]], raw: bool) -> None:
    question = GetQuestion(pairs, raw)
    assert get_question(parsed(line_of(question.message()))) == question


@given(st.integers(-1, 1 << 62), st.integers(1, MAX_TAKEN), st.none() | st.binary(max_size=5))
def test_takes_come_back(after: int, limit: int, prefix: bytes | None) -> None:
    question = TakeQuestion(after, limit, prefix)
    assert take_of_query(query_of(urlencode(question.query()))) == question


def test_sweeps_are_made_in_any_case_or_if_due() -> None:
    assert [sweep_question({}), sweep_question({"if_due": True}), sweep_question({"if_due": False})] == [
        *(False, True, False),
    ]


@given(SCANS)
def test_scans_come_back(question: ScanQuestion) -> None:
    assert scan_question(parsed(line_of(question.message()))) == question


@given(st.lists(WRITTEN, min_size=1, max_size=5), st.booleans())
def test_writes_come_back(rows: list[Row], any_timestamp: bool) -> None:
    question = WriteQuestion(rows, None, any_timestamp)
    assert write_question(parsed(line_of(question.message()))) == question


@given(st.dictionaries(st.tuples(SHORT, SHORT), st.none() | st.builds(Version, st.integers(0, 9), st.integers(0, 9))))
def test_conditions_come_back(versions: dict[tuple[bytes, bytes], Version | None]) -> None:
    conditions = [Condition(*pair, version) for pair, version in versions.items()]
    question = WriteQuestion([Row(b"", b"k", b"v")], conditions)
    assert write_question(parsed(line_of(question.message()))) == question


@given(
    st.sets(st.tuples(SHORT, SHORT), max_size=20),
    st.none() | st.lists(RANGES, max_size=3),
    st.booleans(),
    st.integers(1, 4),
)
def test_pages_have_all_keys_of_a_scan_once(
    pairs: set[tuple[bytes, bytes]], ranges: list[KeyRange] | None, reverse: bool, size: int
) -> None:
    table = sorted(row_key(*pair) for pair in pairs)

    def found(question: ScanQuestion) -> list[tuple[int, bytes]]:
        return [
            (bounds.range_index, key)
            for bounds in question.bounds()
            for key in (reversed(table) if reverse else table)
            if bounds.start <= key and (bounds.end is None or key < bounds.end)
        ]

    whole = ScanQuestion(ranges, reverse)
    paged: list[tuple[int, bytes]] = []
    page = found(whole)[:size]
    while page:
        paged += page
        token = Place("log", 7, *page[-1]).token()
        place = place_of(token, 1 if ranges is None else len(ranges))
        assert place == Place("log", 7, *page[-1])
        page = found(whole._replace(after=place))[:size]
    assert paged == found(whole)


@pytest.mark.parametrize(
    "token",
    [
        *("", "?", "AAAA", "ä", 5, None, [], "A" * (2 << 20)),
        *(
            base64.urlsafe_b64encode(json.dumps(fields).encode()).decode()
            for fields in (
                5,
                [],
                ["log", 1, 0],
                ["log", "1", 0, ""],
                ["log", 1, 1, ""],
                ["log", 1, -1, ""],
                ["log", -2, 0, ""],
                [1, 1, 0, ""],
                ["log", 1, 0, "?"],
                ["log", 1, 0, 5],
                ["log", 1.5, 0, ""],
                ["log", True, 0, ""],
            )
        ),
    ],
)
def test_foreign_tokens_are_refused(token: object) -> None:
    with pytest.raises(MessageError, match="does not fit this scan"):
        place_of(token, 1)


@pytest.mark.parametrize(
    "message",
    [
        None,
        [],
        {"keys": "ab"},
        {},
        {"keys": [1]},
        {"keys": ["a"] * (MAX_KEYS + 1)},
        {"keys": [], "other": 1},
        {"keys": [], "raw": 1},
        {"keys": [], "prefix": None},
        {"keys": [], "rows": []},
        {"prefix": "", "rows": []},
        {"rows": {}},
        {"rows": [{"prefix": ""}]},
        {"rows": [{"key": "a", "value": "b"}]},
        {"rows": [{"key": "a"}] * (MAX_KEYS + 1)},
    ],
)
def test_foreign_gets_are_refused(message: object) -> None:
    with pytest.raises(MessageError):
        get_question(message)


@pytest.mark.parametrize("query", ["after=x", "after=-2", "limit=0", f"limit={MAX_TAKEN + 1}"])
def test_foreign_takes_are_refused(query: str) -> None:
    with pytest.raises(MessageError):
        take_of_query(query_of(query))


@pytest.mark.parametrize("message", [None, [], {"if_due": 1}, {"due": True}])
def test_foreign_sweeps_are_refused(message: object) -> None:
    with pytest.raises(MessageError):
        sweep_question(message)


@pytest.mark.parametrize(
    "message",
    [
        {"limit": 0},
        {"limit": True},
        {"ranges": [{}] * (MAX_RANGES + 1)},
        {"ranges": [{"from": ""}]},
        {"ranges": [], "prefix": ""},
        {"ranges": {}},
        {"reverse": "true"},
        {"token": 1},
    ],
)
def test_foreign_scans_are_refused(message: object) -> None:
    with pytest.raises(MessageError):
        scan_question(message)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"rows": []},
        {"rows": [{"key": "k"}]},
        {"rows": [{"value": "v"}]},
        {"rows": [{"key": "k", "value": "v", "timestamp_ms": 0}]},
        {"rows": [{"key": "k", "value": "v", "timestamp_ms": 5}], "if": [{"key": "k", "version": None}]},
        {"rows": [{"key": "k", "value": "v"}], "if": [{"key": "k"}]},
        {"rows": [{"key": "k", "value": "v"}], "if": [{"key": "k", "version": "1"}]},
        {"rows": [{"key": "k", "value": "v"}], "if": [{"key": "k", "version": None}, {"key": "k", "version": "1.0"}]},
        {"rows": [{"key": "k", "value": "v"}] * 2, "if": [{"key": "k", "version": None}]},
        {"rows": [{"key": "k", "value": "v"}], "any_timestamp": True, "if": [{"key": "k", "version": None}]},
    ],
)
def test_foreign_writes_are_refused(message: object) -> None:
    with pytest.raises(MessageError):
        write_question(message)


def test_a_tombstone_has_no_value() -> None:
    with pytest.raises(EnvelopeError):
        write_question({"rows": [{"key": "k", "value": "v", "tombstone": True}]})


@given(SHORT, SHORT, SHORT)
def test_a_query_carries_any_bytes(prefix: bytes, start: bytes, end: bytes) -> None:
    query = query_of(f"prefix={quote(prefix)}&start={quote(start)}&end={quote(end)}&limit=3&reverse=true")
    assert bytes_in(query, "prefix") == prefix
    assert bytes_in(query, "none") == b""
    assert scan_of_query(query) == ScanQuestion([KeyRange(prefix, start, end)], reverse=True, limit=3)


def test_a_query_without_range_is_the_whole_table() -> None:
    assert scan_of_query({}) == ScanQuestion()


@pytest.mark.parametrize("raw", ["a=1&a=2", "&".join(f"a{number}=1" for number in range(100))])
def test_queries_are_limited(raw: str) -> None:
    with pytest.raises(MessageError):
        query_of(raw)


@given(
    st.builds(
        ReadMode,
        st.integers(-1, 1 << 62),
        st.booleans(),
        st.integers(1, MAX_TIMEOUT_MS),
        stale_ok_ms=st.none() | st.integers(0, MAX_TIMEOUT_MS),
    )
)
def test_modes_come_back(mode: ReadMode) -> None:
    assert read_mode(mode.query()) == mode


@pytest.mark.parametrize(
    "query",
    [
        {"fresh": "yes"},
        {"at_least": "x"},
        {"at_least": "-2"},
        {"at_least": "9" * 30},
        {"timeout_ms": "0"},
        {"timeout_ms": str(MAX_TIMEOUT_MS + 1)},
        {"timeout_ms": "²"},
    ],
)
def test_foreign_modes_are_refused(query: dict[str, str]) -> None:
    with pytest.raises(MessageError):
        read_mode(query)


def test_a_number_has_bounds() -> None:
    assert number("-1", "it", -1) == -1
    with pytest.raises(MessageError, match="it must be"):
        number("--1", "it", -1)


WORDS = st.sampled_from(
    [
        "prefix",
        "keys",
        "key",
        "rows",
        "raw",
        "ranges",
        "limit",
        "token",
        "if",
        "version",
        "value",
        "tombstone",
        "if_due",
    ]
)
PARAMETERS = st.sampled_from(
    ["after", "limit", "prefix", "start", "end", "token", "raw", "at_least", "fresh", "timeout_ms"]
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | st.just("base64"), inner, max_size=4),
    max_leaves=12,
)


@given(ANY_JSON)
def test_any_message_is_a_question_or_is_refused(message: object) -> None:
    for read in (get_question, scan_question, write_question, sweep_question):
        try:
            read(message)
        except (MessageError, EnvelopeError):
            continue


@given(st.dictionaries(PARAMETERS, st.text(max_size=5)))
def test_any_parameters_are_a_question_or_are_refused(parameters: dict[str, str]) -> None:
    query = query_of(urlencode(parameters))
    for read in (take_of_query, scan_of_query, read_mode):
        try:
            read(query)
        except MessageError:
            continue
