"""Properties of a partition: their names, their values, and their ZooKeeper node.

The node is JSON: the properties that differ from their defaults, by Amza's names, and a counter of changes. It is
changed by compare-and-set; a partition that was never configured has none.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from waltz.common.retention import RETENTION_AGE, RETENTION_SIZE
from waltz.common.trim_point import TRIM_POINT
from waltz.common.zk.client import BadVersionError, NodeExistsError, Nodes, NoNodeError, Watch
from waltz.common.zk.paths import ClusterPaths
from waltz.table.ages import Ages
from waltz.table.codecs import Codec
from waltz.table.envelope import DEFAULT_MAX_BODY_BYTES
from waltz.table.errors import PropertiesError
from waltz.table.limits import LMDB_MAX_ROW_KEY_BYTES
from waltz.table.stores.registry import canonical

CHANGE = "change"
"""The counter's key in the node."""

_HOUR_MS = 3_600_000
_CODECS = {
    "primary": Codec.NONE,
    "zlib": Codec.ZLIB,
    "snappy_primary": Codec.SNAPPY,
    "zstd": Codec.ZSTD,
    "lz4": Codec.LZ4,
}


def _only(holds: object, reason: str) -> AfterValidator:
    """A property with a single possible value; any other value is refused, not accepted and ignored."""

    def check(value: object) -> object:
        if value != holds:
            raise ValueError(f"only {holds} is possible: {reason}")
        return value

    return AfterValidator(check)


def _named(key: str, default: object) -> Any:
    """A property with another name in the node."""
    return Field(default=default, validation_alias=key, serialization_alias=key)


_Age = Annotated[int, Field(ge=0, strict=True)]
"""Milliseconds; 0 is never."""
_Size = Annotated[int, Field(ge=1, strict=True)]


class PartitionProperties(BaseModel):
    """The configuration of a partition. The keys are Amza's if Amza has the property.

    Examples:
        ```python
        properties = waltz.table.PartitionProperties(format="table", ttl_timestamp_age_ms=86_400_000)
        async with client.table(0, properties=properties) as table:  # instead of those in the cluster
            await table.put(b"alice", b"for a day")
        ```
    """

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    format: Literal["raw", "table"] = "raw"
    """Whether the data of transactions is the application's, or envelopes."""
    disabled: Annotated[bool, Field(strict=True)] = False
    """Whether appends are refused: by tables, and by this package's servers for other clients."""
    row_type: Literal["primary", "zlib", "snappy_primary", "zstd", "lz4"] = _named("rowType", "primary")
    """The codec of new transactions."""
    index_class_name: Annotated[str, Field(min_length=1)] | None = _named("indexClassName", None)
    """The store of views, by name or alias; ``None``: chosen when a view is opened."""

    tombstone_timestamp_age_ms: _Age = _named("tombstoneTimestampAgeInMillis", 0)
    tombstone_timestamp_interval_ms: _Age = _named("tombstoneTimestampIntervalMillis", 0)
    tombstone_version_age_ms: _Age = _named("tombstoneVersionAgeInMillis", 0)
    tombstone_version_interval_ms: _Age = _named("tombstoneVersionIntervalMillis", 0)
    ttl_timestamp_age_ms: _Age = _named("ttlTimestampAgeInMillis", 0)
    ttl_timestamp_interval_ms: _Age = _named("ttlTimestampIntervalMillis", 0)
    ttl_version_age_ms: _Age = _named("ttlVersionAgeInMillis", 0)
    ttl_version_interval_ms: _Age = _named("ttlVersionIntervalMillis", 0)

    max_timestamp_skew_ms: _Age = _named("maxTimestampSkewInMillis", _HOUR_MS)
    """Greatest distance of a timestamp ahead of the writer's clock, in milliseconds."""
    max_body_bytes: _Size = _named("maxDecompressedSizeInBytes", DEFAULT_MAX_BODY_BYTES)
    """Limit of decompressed bodies; larger ones are no envelopes. A change rebuilds views."""
    max_key_bytes: _Size | None = _named("maxKeySizeInBytes", None)
    """Limit of prefix (as stored) and key together, for writers."""

    durability: Annotated[str, _only("fsync_always", "storages know no other durability yet")] = "fsync_always"
    consistency: Literal[
        "leader",
        "leader_plus_one",
        "leader_quorum",
        "leader_all",
        "quorum",
        "write_all_read_one",
        "write_one_read_all",
        "none",
    ] = "leader_quorum"
    """What the partition demands of appends, and the level of appends whose writer names none."""
    require_consistency: Annotated[bool, Field(strict=True)] = _named("requireConsistency", True)
    """Whether appends at a level that does not go with :attr:`consistency` are refused."""
    refuse_legacy_writers: Annotated[bool, Field(strict=True)] = _named("refuseLegacyWriters", False)
    """Whether writers whose protocol has no levels are refused like writers at ``leader_quorum``."""
    replicated: Annotated[bool, _only(True, "it needs another consistency")] = True
    index_properties: Annotated[dict[str, str] | None, _only(None, "the stores have no properties")] = _named(
        "indexProperties", None
    )
    max_value_size_in_index: Annotated[int, _only(-1, "views hold whole values")] = _named("maxValueSizeInIndex", -1)
    force_compaction_on_startup: Annotated[bool, _only(False, "logs are not compacted yet")] = _named(
        "forceCompactionOnStartup", False
    )
    view: Annotated[str, _only("client", "servers keep no views yet")] = "client"
    retention_age_ms: _Age = _named(RETENTION_AGE, 0)
    """Age since the commit, in milliseconds, at which transactions are trimmed."""
    retention_size_bytes: Annotated[int, Field(ge=0, strict=True)] = _named(RETENTION_SIZE, 0)
    """The oldest segments are trimmed, as long as the others have at least this size on a storage; 0: never."""
    trim_point: Annotated[int, Field(ge=0, strict=True)] = _named(TRIM_POINT, 0)
    """The first transaction that was not trimmed. Only a trim changes it, and it only grows."""

    @model_validator(mode="after")
    def _check_store(self) -> "PartitionProperties":
        longest = LMDB_MAX_ROW_KEY_BYTES
        is_lmdb = canonical(self.index_class_name or "") == "lmdb"
        if is_lmdb and (self.max_key_bytes is None or self.max_key_bytes > longest):
            raise ValueError(
                f"indexClassName {self.index_class_name} holds keys of at most {longest} bytes, prefix included: "
                "set maxKeySizeInBytes to that or less"
            )
        return self

    @property
    def codec(self) -> Codec:
        """The codec of new transactions."""
        return _CODECS[self.row_type]

    @property
    def ages(self) -> Ages:
        """The ages at which rows are hidden or may be removed."""
        return Ages(
            self.tombstone_timestamp_age_ms,
            self.tombstone_version_age_ms,
            self.ttl_timestamp_age_ms,
            self.ttl_version_age_ms,
        )

    @property
    def intervals(self) -> Ages:
        """The delay of a sweep after each age."""
        return Ages(
            self.tombstone_timestamp_interval_ms,
            self.tombstone_version_interval_ms,
            self.ttl_timestamp_interval_ms,
            self.ttl_version_interval_ms,
        )


class StoredProperties(NamedTuple):
    """Properties as read from ZooKeeper."""

    properties: PartitionProperties
    change: int
    """Number of changes; 0 without a node."""
    node_version: int | None
    """Version of the node, for compare-and-set; ``None`` without a node."""


def decode_properties(data: bytes | None, path: str) -> tuple[PartitionProperties, int]:
    """Properties and change counter of a node. Raises :class:`PropertiesError`."""
    try:
        fields = json.loads(data or b"")
        change = fields.pop(CHANGE)
    except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
        raise PropertiesError(f"{path} does not hold properties of a partition") from None
    if type(change) is not int or change < 1:
        raise PropertiesError(f"{path} has the change counter {change!r}")
    try:
        return _validated(fields), change
    except PropertiesError as error:
        raise PropertiesError(f"{path}: {error}") from None


def encode_properties(properties: PartitionProperties, change: int) -> bytes:
    """The data of the node."""
    fields = properties.model_dump(by_alias=True, exclude_defaults=True)
    return json.dumps({**fields, CHANGE: change}, sort_keys=True).encode()


def changed(properties: PartitionProperties, changes: Mapping[str, object]) -> PartitionProperties:
    """The properties with changes by their keys; ``None`` resets a property to its default.

    Raises :class:`PropertiesError`, which names the key.
    """
    if TRIM_POINT in changes:
        raise PropertiesError(f"{TRIM_POINT} is changed by a trim only: waltz partition trim")
    fields: dict[str, object] = properties.model_dump(by_alias=True, exclude_defaults=True)
    fields.update(changes)
    known = _validated({key: value for key, value in fields.items() if value is not None})
    _validated(dict.fromkeys(changes), only_names=True)
    return known


def _validated(fields: Mapping[str, Any], *, only_names: bool = False) -> PartitionProperties:
    try:
        return PartitionProperties.model_validate(fields, by_name=False)
    except ValidationError as error:
        problems = []
        for problem in error.errors(include_url=False, include_input=False, include_context=False):
            key = ".".join(map(str, problem["loc"]))
            if problem["type"] == "extra_forbidden":
                problems.append(f"there is no property {key!r}")
            elif not only_names:
                text = problem["msg"].removeprefix("Value error, ")
                problems.append(f"{key}: {text}" if key else text)
        if only_names and not problems:
            return PartitionProperties()
        raise PropertiesError("; ".join(problems)) from None


async def read_properties(nodes: Nodes, root: str, partition_id: int, watch: Watch | None = None) -> StoredProperties:
    """The properties of a partition, or the defaults without a node; the watch is set in either case.

    Raises :class:`PropertiesError` when the node has other content, such as properties of a later version, and
    ``ZooKeeperError``.
    """
    path = ClusterPaths.of(root).partition_properties(partition_id)
    while True:
        try:
            data, stat = await nodes.get(path, watch)
        except NoNodeError:
            if watch is None or await nodes.exists(path, watch) is None:
                return StoredProperties(PartitionProperties(), 0, None)
        else:
            return StoredProperties(*decode_properties(data, path), stat.version)


class Replaced(NamedTuple):
    """The answer of a server that was to replace properties."""

    done: bool
    """Whether the properties are replaced; if not, they have had another number of changes."""
    change: int
    """Their number of changes now."""


Replace = Callable[[int, int, str], Awaitable[Replaced]]
"""Lets a server replace the properties of a partition that have had a number of changes, by a JSON object."""

MAX_ATTEMPTS = 10
"""Attempts to change properties that others change at the same time."""


async def change_properties_by(
    nodes: Nodes, root: str, partition_id: int, changes: Mapping[str, object], replace: Replace
) -> StoredProperties:
    """Change some properties like :func:`change_properties`, but let ``replace`` write them: a server, for users that
    may only read them in ZooKeeper.

    Raises :class:`PropertiesError`, ``ZooKeeperError``, and what ``replace`` raises.
    """
    for _ in range(MAX_ATTEMPTS):
        stored = await read_properties(nodes, root, partition_id)
        properties = changed(stored.properties, changes)
        if properties == stored.properties:
            return stored
        fields = properties.model_dump(by_alias=True, exclude_defaults=True)
        fields.pop(TRIM_POINT, None)
        replaced = await replace(partition_id, stored.change, json.dumps(fields, sort_keys=True))
        if replaced.done:
            return StoredProperties(properties, replaced.change, None)
        await nodes.sync(ClusterPaths.of(root).root)
    raise PropertiesError("others keep changing the properties; try again")


async def change_properties(
    nodes: Nodes, root: str, partition_id: int, changes: Mapping[str, object]
) -> StoredProperties:
    """Change some properties of a partition like :func:`changed`; concurrent changes of other properties stay.

    Without a change nothing is written. Raises :class:`PropertiesError`, and ``ZooKeeperError``: after a
    ``ConnectionLossError`` the change may have been made, and the call can be repeated.
    """
    path = ClusterPaths.of(root).partition_properties(partition_id)
    while True:
        stored = await read_properties(nodes, root, partition_id)
        properties = changed(stored.properties, changes)
        if properties == stored.properties:
            return stored
        change = stored.change + 1
        data = encode_properties(properties, change)
        try:
            if stored.node_version is None:
                await nodes.create(path, data, make_path=True)
                return StoredProperties(properties, change, 0)
            stat = await nodes.set(path, data, stored.node_version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue
        return StoredProperties(properties, change, stat.version)
