"""The table of rights, and what follows from it, against a plain reading of it."""

import base64
import hashlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.zk.paths import ClusterPaths
from waltz.common.zk.protection import (
    ALL,
    DOCUMENT_PATH,
    OPEN,
    PREPARED,
    TABLE,
    AclEntry,
    Protection,
    ProtectionError,
    Role,
    bits,
    checked,
    identity_of,
    letters,
    open_for_original,
    relative,
    rights_at,
)

NAMES = st.text(st.characters(exclude_characters="/", exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
SEGMENTS = st.sampled_from(sorted({name for line in TABLE for name in line.pattern.split("/")} - {"*"})) | NAMES
PATHS = st.lists(SEGMENTS, max_size=5).map("/".join) | st.sampled_from(TABLE).flatmap(
    lambda line: st.lists(SEGMENTS, min_size=4, max_size=4).map(
        lambda names: "/".join(names.pop() if part == "*" and names else part for part in line.pattern.split("/"))
    )
)
USER = st.text(
    st.characters(codec="ascii", exclude_characters=":", exclude_categories=("Cc", "Z")), min_size=1, max_size=8
)
IDENTITIES = st.builds(identity_of, USER, st.text(max_size=20))


@st.composite
def protections(draw: st.DrawFn) -> Protection:
    identities = draw(st.lists(IDENTITIES, min_size=1, max_size=8, unique_by=lambda each: each.partition(":")[0]))
    admins = draw(st.integers(1, len(identities)))
    users: dict[Role, tuple[str, ...]] = {Role.ADMIN: tuple(sorted(identities[:admins]))}
    for identity in identities[admins:]:
        role = draw(st.sampled_from([Role.SERVER, Role.STORAGE, Role.CLIENT, Role.ENFORCER]))
        users[role] = tuple(sorted((*users.get(role, ()), identity)))
    return Protection({role: users.get(role, ()) for role in Role}, draw(st.booleans()))


def naive_permissions(role: str, path: str) -> set[str]:
    """By going through the table with the names of the path, one after the other."""
    if role == "admin":
        return set("cdrwa")
    for line in TABLE:
        pattern, names = line.pattern.split("/"), path.split("/")
        while pattern and names and re.fullmatch(re.escape(pattern[0]).replace(r"\*", ".*"), names[0], re.DOTALL):
            pattern, names = pattern[1:], names[1:]
        if not pattern and not names:
            return set(getattr(line, role)) | (set(line.client) if role == "enforcer" else set())
    return set()


@given(protections(), PATHS)
def test_a_list_is_what_the_table_says(protection: Protection, path: str) -> None:
    found: dict[str, set[str]] = {}
    for entry in protection.acl_of(path):
        assert entry.permissions
        assert (entry.scheme == "digest") is (entry.id != "anyone")
        found[entry.id] = set(letters(entry.permissions))
    wanted = {identity: naive_permissions(role.value, path) for role in Role for identity in protection.users[role]}
    if protection.with_original_nodes:
        wanted["anyone"] = naive_permissions("original", path)
    assert found == {name: permissions for name, permissions in wanted.items() if permissions}
    assert len(found) == len(protection.acl_of(path))


@given(protections(), PATHS)
def test_only_what_the_original_creates_may_be_open(protection: Protection, path: str) -> None:
    assert protection.accepts(path, protection.acl_of(path))
    is_of_original = path.count("/") == path.startswith("serverDescriptors/") + 2 * path.startswith("store/partition/")
    is_of_original = is_of_original and path.startswith(("serverDescriptors/", "store/partition/"))
    assert protection.accepts(path, OPEN) is (protection.with_original_nodes and is_of_original)
    assert not protection.accepts(path, frozenset())


@given(PATHS)
def test_nobody_but_admins_changes_lists(path: str) -> None:
    line = rights_at(path)
    assert "a" not in line.server + line.storage + line.client + line.enforcer + line.original


@given(PATHS)
def test_enforcers_are_clients_that_may_read_the_access_rules(path: str) -> None:
    """They may tell which rules they apply, as nodes do; nobody but admins writes the rules or the names."""
    line = rights_at(path)
    of_rules = path in ("ext/acl", "ext/acl/applied", "ext/names")
    of_view_node = path.startswith("ext/acl/applied/view-") and path.count("/") == 3
    assert bool(line.enforcer) is (of_rules or of_view_node)
    if of_rules:
        assert line.enforcer == line.server == line.storage
        assert line.client == line.original == ""
    if path in ("ext/acl", "ext/names"):
        assert "w" not in line.enforcer


@given(st.sampled_from(["server", "storage", "view"]), NAMES)
def test_each_role_tells_only_for_itself_which_rules_it_applies(kind: str, name: str) -> None:
    line = rights_at(f"ext/acl/applied/{kind}-{name}")
    assert (line.server, line.storage, line.enforcer) == tuple(
        "rw" if kind == each else "" for each in ("server", "storage", "view")
    )
    assert line.client == line.original == ""


def test_the_lines_are_in_order_and_each_can_match() -> None:
    patterns = [line.pattern for line in TABLE]
    assert len(set(patterns)) == len(patterns)
    assert [rights_at(pattern) for pattern in patterns] == list(TABLE)


def test_every_path_of_a_cluster_has_a_line() -> None:
    """Those for admins only are listed here: a new path must not be closed to its users by mistake."""
    paths = ClusterPaths.of("/r")
    given_by = {
        **{name: getattr(paths, name) for name, kind in vars(ClusterPaths).items() if isinstance(kind, property)},
        "server_descriptor": paths.server_descriptor("s_1"),
        "partition": paths.partition(0),
        "partition_properties": paths.partition_properties(0),
        "cursor": paths.cursor("g", 0),
        "consumer_members": paths.consumer_members("g"),
        "consumer_owners": paths.consumer_owners("g"),
        "election": paths.election(0),
        "view_nodes": paths.view_nodes(0),
        "view_node": paths.view_node(0, "a:1"),
        "applied_rules_of": paths.applied_rules_of("server-a:1"),
        "replica_move": paths.replica_move(0),
        "archive_lock": paths.archive_lock(0),
        "mirror": paths.mirror(0),
        "mirror_lock": paths.mirror_lock(0),
        "storage_labels": paths.storage_labels("a:1"),
        "ring": paths.ring("a"),
    }
    methods = {name for name, kind in vars(ClusterPaths).items() if callable(kind) and not name.startswith("_")}
    assert methods - {"of"} <= given_by.keys(), "a path that this test does not know yet"
    closed = {name for name, path in given_by.items() if not any(rights_at(relative("/r", path) or "")[1:6])}
    assert closed == {"admin_lock", "replica_moves", "replica_move", "replica_moves_lock"}


def test_what_servers_and_clients_find_prepared_is_theirs() -> None:
    for path in PREPARED:
        line = rights_at(path)
        found = line.server if path == "ext/partition" else line.client
        assert set("rw" if path == "ext/clock" else "cr") <= set(found)
    assert "c" not in rights_at("ext").client + rights_at("ext").server
    assert dict(open_for_original())["serverDescriptors"] == "cdrw"
    assert not any(pattern.startswith("ext") for pattern, _ in open_for_original())


@given(st.sets(st.sampled_from("cdrwa")))
def test_letters(chosen: set[str]) -> None:
    assert set(letters(bits("".join(chosen)))) == chosen
    assert bits("cdrwa") == ALL == 31


@given(st.text(max_size=20))
def test_identities_are_those_of_zookeeper(password: str) -> None:
    digest = base64.b64encode(hashlib.sha1(f"svc:{password}".encode()).digest()).decode()
    assert identity_of("svc", password) == f"svc:{digest}"


def test_a_known_identity() -> None:
    """That of ZooKeeper's documentation."""
    assert identity_of("super", "admin") == "super:xQJmxLMiHGwaqBvst5y6rkB6HQs="


def test_text_of_an_entry_has_no_hash() -> None:
    assert str(AclEntry("digest", identity_of("svc", "password"), 5)) == "digest:svc:cr"
    assert str(AclEntry("world", "anyone", 31)) == "world:anyone:cdrwa"


@given(protections())
def test_encoding(protection: Protection) -> None:
    assert Protection.decode(protection.encode()) == protection
    assert Protection.decode(protection.encode()).encode() == protection.encode()


def test_golden_document() -> None:
    identity = identity_of("ops", "password")
    assert json.loads(Protection({Role.ADMIN: (identity,)}).encode()) == {
        "version": 1,
        "withOriginalNodes": False,
        "users": {"server": [], "storage": [], "client": [], "admin": [identity]},
    }


def test_versions_without_enforcers_read_a_document_without_any() -> None:
    identity = identity_of("ops", "password")
    without = Protection({Role.ADMIN: (identity,), Role.ENFORCER: ()})
    assert "enforcer" not in json.loads(without.encode())["users"]
    assert Protection.decode(without.encode()).users[Role.ENFORCER] == ()
    enforcer = identity_of("view", "password")
    document = json.loads(Protection({Role.ADMIN: (identity,), Role.ENFORCER: (enforcer,)}).encode())
    assert document["users"]["enforcer"] == [enforcer]


@given(
    st.binary(max_size=40)
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["version", "users", "withOriginalNodes", "server", "x"]), inner, max_size=4
            )
        ),
    ).map(lambda value: json.dumps(value).encode())
)
def test_hostile_documents(data: bytes) -> None:
    with pytest.raises(ProtectionError):
        Protection.decode(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("version", 2),
        ("withOriginalNodes", "yes"),
        ("users", {"admin": ["ops"]}),
        ("users", {"admin": ["ops:bm8="]}),
        ("users", {"admin": [7]}),
        ("users", {"boss": []}),
        ("users", {"admin": []}),
        ("users", []),
        ("more", 1),
    ],
)
def test_documents_that_say_something_else(field: str, value: object) -> None:
    good = json.loads(Protection({Role.ADMIN: (identity_of("ops", "password"),)}).encode())
    with pytest.raises(ProtectionError):
        Protection.decode(json.dumps({**good, field: value}).encode())
    with pytest.raises(ProtectionError):
        Protection.decode(None)
    with pytest.raises(ProtectionError):
        Protection.decode(b"[" * 100_000)


def test_impossible_protections() -> None:
    ops, twice = identity_of("ops", "password"), identity_of("ops", "other")
    for users, why in (
        ({Role.SERVER: (ops,)}, "no user with the role admin"),
        ({Role.ADMIN: (ops,), Role.CLIENT: (twice,)}, "user ops is in two roles: admin and client"),
        ({Role.ADMIN: tuple(identity_of(f"user{number}", "") for number in range(101))}, "there are 101 users"),
    ):
        with pytest.raises(ProtectionError, match=why):
            checked(Protection(users))


@given(PATHS)
def test_relative(path: str) -> None:
    assert relative("/a/b", "/a/b") == ""
    assert relative("/a/b", f"/a/b/{path}") == path
    assert relative("/a/b", f"/a/bc/{path}") is None
    assert relative("/a/b", "/a") is None


def test_the_document_is_for_all_users() -> None:
    line = rights_at(DOCUMENT_PATH)
    assert (line.server, line.storage, line.client, line.original) == ("r", "r", "r", "")
