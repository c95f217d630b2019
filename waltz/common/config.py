"""Configuration files: the original's YAML keys, read into typed models.

A key such as ``server.ssl.keyStore.location`` may be written flat, nested, or as any mix of both; numbers may be
written as strings. Attribute names of the models are Python's and carry units; the keys stay those of the original.

What is wrong is said in one line that names the key, the file and, where there is one, the near miss. A key that
nothing knows is a warning with the nearest known name, since a misspelt option otherwise silently keeps its default.
"""

import difflib
import logging
import os
import reprlib
import socket
from collections.abc import Hashable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_core import ErrorDetails

from waltz.common.errors import ConfigError

logger = logging.getLogger(__name__)

_NEAR = 0.75
"""Similarity above which an unknown key is taken for a misspelt known one."""

_REST_NEAR = 0.5
"""The same for what follows the groups that two keys share."""

_SHOWN_LENGTH = 60

_CHECK_HOSTNAME = "checkHostname"

MAX_LOCKS = 10_000
"""Locks of one transaction, unless configured otherwise."""

_MAX_FILE_BYTES = 1 << 20
_MAX_KEYS = 1000
_MAX_DEPTH = 20
"""Of nested keys. YAML aliases let a few lines say endlessly many, and endlessly deep ones."""


def _not_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


def _lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _root_path(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not value.startswith("/") or "//" in value or value != value.strip() or (value != "/" and value.endswith("/")):
        raise ValueError("expected an absolute ZooKeeper path without a trailing slash, such as /waltz")
    return value


_Integer = Annotated[int, BeforeValidator(_not_boolean)]
_Positive = Annotated[_Integer, Field(ge=1)]
_NotNegative = Annotated[_Integer, Field(ge=0)]
_Port = Annotated[_Integer, Field(ge=0, le=65535)]
"""Port 0 lets the operating system choose."""
_Text = Annotated[str, Field(min_length=1)]
_RootPath = Annotated[str, BeforeValidator(_root_path)]


class _Model(BaseModel):
    """Base of all models: immutable, no unknown attributes, made by attribute name or from a file's keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class TlsConfig(_Model):
    """The keys below ``server.ssl``, ``storage.ssl``, ``client.ssl`` or ``ssl``.

    Without a key store a self-signed certificate is made, without a trust store peers are not verified; a trust store
    makes client certificates mandatory. The type keys are accepted, but the files' contents decide.

    Two keys are our own. ``plaintext``: no TLS at all; peers that run the original cannot talk to such a node.
    ``check_hostname``: with a trust store, whom this side connects to must show a certificate for that host name. It is
    on by default, but off in a configuration file that does not have the key: the original, whose files these may be,
    never checks.
    """

    key_store_location: _Text | None = Field(default=None, validation_alias="keyStore.location")
    key_store_password: SecretStr | None = Field(default=None, validation_alias="keyStore.password")
    key_store_type: str | None = Field(default=None, validation_alias="keyStore.type")
    trust_store_location: _Text | None = Field(default=None, validation_alias="trustStore.location")
    trust_store_password: SecretStr | None = Field(default=None, validation_alias="trustStore.password")
    trust_store_type: str | None = Field(default=None, validation_alias="trustStore.type")
    plaintext: bool = Field(default=False, validation_alias="plaintext")
    check_hostname: bool = Field(default=True, validation_alias=_CHECK_HOSTNAME)


class ConnectionsConfig(_Model):
    """The keys below ``server.connections`` or ``storage.connections``: what peers may cost a node; our own.

    Times are in milliseconds and sizes in bytes. The defaults are those of servers.
    """

    max: _Positive = Field(default=10_000, validation_alias="max")
    """Connections to the client port, or the data port. The process's limit of open files may allow fewer."""
    max_per_address: _Positive = Field(default=5000, validation_alias="maxPerAddress")
    """Connections from one address."""
    hello_timeout_ms: _Positive = Field(default=10_000, validation_alias="helloTimeout")
    """For the TLS handshake, and then for the peer's hello."""
    frame_timeout_ms: _Positive = Field(default=60_000, validation_alias="frameTimeout")
    """A message that has begun must be complete, or 64 KiB further, after this time."""
    unread_timeout_ms: _Positive = Field(default=600_000, validation_alias="unreadTimeout")
    """A peer that owes the reading of more than 1 MiB must have read it, or 64 KiB of it, after this time."""
    receive_memory_bytes: _Positive = Field(default=256 << 20, validation_alias="receiveMemory")
    """All messages together that are not complete."""
    send_memory_bytes: _Positive = Field(default=1 << 30, validation_alias="sendMemory")
    """All that is unsent to peers that do not keep up with reading, together."""


class StorageConnectionsConfig(ConnectionsConfig):
    """The same with the defaults of storage nodes: few peers, large messages, and servers always read."""

    max: _Positive = Field(default=2000, validation_alias="max")
    max_per_address: _Positive = Field(default=1000, validation_alias="maxPerAddress")
    unread_timeout_ms: _Positive = Field(default=60_000, validation_alias="unreadTimeout")
    receive_memory_bytes: _Positive = Field(default=1 << 30, validation_alias="receiveMemory")
    max_admin: _Positive = Field(default=100, validation_alias="maxAdmin")
    """Connections to the admin port."""


class _ClusterModel(_Model):
    zookeeper_connect_string: _Text = Field(validation_alias="zookeeper.connectString")
    cluster_root: _RootPath = Field(validation_alias="cluster.root")


class _NodeModel(_ClusterModel):
    zookeeper_session_timeout_ms: _Positive = Field(validation_alias="zookeeper.sessionTimeout")


class ServerConfig(_NodeModel):
    """Configuration of a server node. ``tls`` serves the client port and the connections to storages."""

    server_port: _Port = Field(validation_alias="server.port")
    server_host: _Text = Field(default_factory=lambda: socket.getfqdn(), validation_alias="server.host")
    """The name that clients are told; our own key. Default: the canonical name of this host, as in the original."""
    server_bind_address: _Text = Field(
        default_factory=lambda data: data.get("server_host", ""), validation_alias="server.bindAddress"
    )
    """What to listen on; our own key. Default: what ``server_host`` resolves to."""
    server_jetty_port: _Port | None = Field(default=None, validation_alias="server.jetty.port")
    """Port of the HTTP endpoints; none without it."""
    optimistic_lock_table_size: _Positive = Field(default=30_000, validation_alias="server.optimisticLockTableSize")
    feed_cache_size_bytes: _NotNegative = Field(default=64 << 20, validation_alias="server.feedCacheSize")
    min_fetch_size: _Positive = Field(default=100, validation_alias="server.minFetchSize")
    realtime_threshold: _Positive = Field(default=1000, validation_alias="server.realtimeThreshold")
    transaction_data_cache_size_bytes: _NotNegative = Field(
        default=128 << 20, validation_alias="server.transactionDataCacheSize"
    )
    transaction_data_cache_allocation: Annotated[Literal["heap", "direct"], BeforeValidator(_lower_case)] = Field(
        default="heap", validation_alias="server.transactionDataCacheAllocation"
    )
    max_transaction_size_bytes: _Positive = Field(default=32 << 20, validation_alias="server.maxTransactionSize")
    """Largest transaction data that a client may append; our own key."""
    max_locks_per_transaction: _Positive = Field(default=MAX_LOCKS, validation_alias="server.maxLocksPerTransaction")
    """Locks of all kinds together that an append may name; our own key."""
    append_memory_bytes: _Positive = Field(
        default_factory=lambda data: max(1 << 30, 4 * data.get("max_transaction_size_bytes", 0)),
        validation_alias="server.appendMemory",
    )
    """All appends together that are not committed or kept for storages that lag; our own key."""
    storage_max_batch_size: _Positive = Field(default=100, validation_alias="storage.maxBatchSize")
    storage_initial_retry_interval_ms: _Positive = Field(default=100, validation_alias="storage.initialRetryInterval")
    storage_max_retry_interval_ms: _Positive = Field(default=20_000, validation_alias="storage.maxRetryInterval")
    storage_checkpoint_interval: _Positive = Field(default=250_000, validation_alias="storage.checkpointInterval")
    """Transactions after which a store session is renewed."""
    connections: ConnectionsConfig = Field(default_factory=ConnectionsConfig, validation_alias="server.connections")
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="server.ssl")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_ports(self, "server_port", "server_jetty_port")
        if self.min_fetch_size >= self.realtime_threshold:
            raise ValueError(
                f"server.minFetchSize ({self.min_fetch_size}) must be smaller than "
                f"server.realtimeThreshold ({self.realtime_threshold})"
            )
        _check_memory("server", self.connections, "server.maxTransactionSize", self.max_transaction_size_bytes)
        if self.append_memory_bytes < self.max_transaction_size_bytes:
            raise ValueError(
                f"server.appendMemory ({self.append_memory_bytes}) must not be smaller than "
                f"server.maxTransactionSize ({self.max_transaction_size_bytes})"
            )
        return self


class StorageConfig(_NodeModel):
    """Configuration of a storage node. ``tls`` serves both of its ports."""

    storage_port: _Port = Field(validation_alias="storage.port")
    storage_admin_port: _Port = Field(validation_alias="storage.admin.port")
    storage_jetty_port: _Port | None = Field(default=None, validation_alias="storage.jetty.port")
    """Port of the HTTP endpoints; none without it."""
    storage_directory: _Text = Field(validation_alias="storage.directory")
    storage_bind_address: _Text = Field(
        default_factory=lambda: socket.gethostname(), validation_alias="storage.bindAddress"
    )
    """What to listen on; our own key. Default: what the name of this host resolves to, as in the original."""
    segment_size_threshold_bytes: Annotated[_Integer, Field(ge=128)] = Field(
        default=1_000_000_000, validation_alias="storage.segment.size.threshold"
    )
    segment_cache_capacity: _Positive = Field(default=5, validation_alias="storage.segment.cache.capacity")
    """Segments behind the current one that a partition keeps open."""
    max_request_size_bytes: _Positive = Field(default=512 << 20, validation_alias="storage.maxRequestSize")
    """Largest message that a peer may send, such as a batch of appends of a server; our own key."""
    connections: StorageConnectionsConfig = Field(
        default_factory=StorageConnectionsConfig, validation_alias="storage.connections"
    )
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="storage.ssl")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_ports(self, "storage_port", "storage_admin_port", "storage_jetty_port")
        _check_memory("storage", self.connections, "storage.maxRequestSize", self.max_request_size_bytes)
        return self


class ClientConfig(_NodeModel):
    """Configuration of the client library."""

    auto_mount: bool = Field(default=True, validation_alias="client.autoMount")
    num_transaction_retry_threads: _NotNegative = Field(default=1, validation_alias="client.numTransactionRetryThreads")
    """How many transactions may be built again at a time; 0 turns retries off."""
    num_consumer_threads: _Positive = Field(default=10, validation_alias="client.numConsumerThreads")
    """How many partitions may apply a transaction at a time."""
    long_wait_threshold_ms: _Positive = Field(default=5000, validation_alias="client.longWaitThreshold")
    max_concurrent_transactions: _Positive = Field(default=5, validation_alias="client.maxConcurrentTransactions")
    """Transactions in flight per partition."""
    max_transaction_size_bytes: _Positive = Field(default=32 << 20, validation_alias="client.maxTransactionSize")
    """Largest transaction data that may be submitted; our own key."""
    max_locks_per_transaction: _Positive = Field(default=MAX_LOCKS, validation_alias="client.maxLocksPerTransaction")
    """Locks of all kinds together that a transaction may name; our own key."""
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="client.ssl")


class CliConfig(_ClusterModel):
    """Configuration of the administration tools."""

    zookeeper_session_timeout_ms: _Positive = Field(default=30_000, validation_alias="zookeeper.sessionTimeout")
    zookeeper_connect_timeout_ms: _Positive = Field(default=10_000, validation_alias="zookeeper.connectTimeout")
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="ssl")


_BRIEF = reprlib.Repr()
_BRIEF.maxlevel = 2
_BRIEF.maxstring = _BRIEF.maxother = _BRIEF.maxlong = 2 * _SHOWN_LENGTH

_ModelT = TypeVar("_ModelT", bound=BaseModel)

_MODELS: tuple[type[BaseModel], ...] = (ServerConfig, StorageConfig, ClientConfig, CliConfig)

_WITHOUT_EFFECT = (
    "server.region",
    "client.mockDriver",
    *(f"{part}ssl.keyManager.algorithm" for part in ("", "server.", "storage.", "client.")),
    *(f"{part}ssl.trustManager.algorithm" for part in ("", "server.", "storage.", "client.")),
)
"""Keys of the original that mean nothing here; nothing is lost by ignoring them."""

_NOT_SUPPORTED = {
    "server.graphite": "metrics are read from /metrics/prometheus on server.jetty.port",
    "storage.graphite": "metrics are read from /metrics/prometheus on storage.jetty.port",
}
"""Keys of the original that ask for something that does not exist here, and what does instead."""


def load(path: str | os.PathLike[str], model: type[_ModelT], *, prefix: str = "") -> _ModelT:
    """Read a YAML file into a model.

    ``prefix`` (such as ``"server.ssl."``) stands before every key of the model; other keys are left alone then.
    Raises ``ConfigError`` for everything that is wrong with the file or its values.
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ConfigError(f"{path} is no configuration file: it has more than {_MAX_FILE_BYTES} bytes")
        document = _parse(content.decode())
    except OSError as error:
        raise ConfigError(f"cannot read configuration file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not a text file in UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark is not None else ""
        # The cause would show a piece of the file, in which there may be a password.
        raise ConfigError(f"{path}{line}: not valid YAML: {_one_line(error.problem)}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_one_line(error)}") from None
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}, line 1: expected lines of the form 'key: value', found {_shown(document)}")
    unchecked = {key: False for key in _keys(model) if key.rpartition(".")[2] == _CHECK_HOSTNAME}
    return _made(document, model, str(path), prefix, unchecked)


def from_mapping(
    mapping: Mapping[str, object], model: type[_ModelT], *, source: str = "configuration", prefix: str = ""
) -> _ModelT:
    """Make a model from keys that are dotted, nested or any mix; ``source`` is how errors call the mapping.

    Raises ``ConfigError`` for a missing key, a wrong value, a key given twice, and ports that clash.
    """
    return _made(mapping, model, source, prefix, {})


def _made(
    mapping: Mapping[str, object], model: type[_ModelT], source: str, prefix: str, defaults: Mapping[str, object]
) -> _ModelT:
    """The model of a mapping. ``defaults``, by keys without the prefix, stand in for the model's own."""
    values: dict[str, object] = {}
    for position, (key, value) in enumerate(_flatten(mapping, "", _MAX_DEPTH)):
        if key is None or position >= _MAX_KEYS:
            limit = f"more than {_MAX_KEYS}" if key is not None else f"nested more than {_MAX_DEPTH} deep"
            raise ConfigError(f"{source} is no configuration: its keys are {limit}")
        if key in values:
            raise ConfigError(f"key '{_shown_key(key)}' is given twice in {source}")
        if value is not None:
            values[key] = value
    own = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
    known = _keys(model)
    unknown = sorted(own.keys() - known)
    given = {key: value for key, value in own.items() if key in known}
    try:
        made = model.model_validate(_nest(model, {**defaults, **given}))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ConfigError(_explain(first, prefix, source, unknown)) from None  # the cause would show secrets
    _warn([prefix + key for key in unknown], [prefix + key for key in known], source)
    return made


class _Loader(yaml.SafeLoader):
    """YAML as usual, except that a key given twice is an error and not silently the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, object]:
        seen = set()
        for name, _ in node.value:
            if isinstance(name, yaml.ScalarNode):
                if name.value in seen:
                    raise yaml.constructor.ConstructorError(
                        problem=f"key '{_shown_key(name.value)}' is given twice", problem_mark=name.start_mark
                    )
                seen.add(name.value)
        return super().construct_mapping(node, deep)

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        super().flatten_mapping(node)
        if len(node.value) > _MAX_KEYS:  # merges of merges double with every line
            raise yaml.constructor.ConstructorError(problem="too many keys", problem_mark=node.start_mark)


def _parse(text: str) -> object:
    try:
        document: object = yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except yaml.YAMLError:
        raise
    except Exception as error:  # its constructors of numbers, dates and the rest raise whatever they stumble over
        raise yaml.YAMLError(f"a value is not what its form promises ({type(error).__name__})") from None
    return document


def _flatten(mapping: Mapping[str, object], prefix: str, depth: int) -> Iterator[tuple[str | None, object]]:
    """Dotted keys and their values, ``None`` for what is nested too deep. An empty group counts as a key too."""
    for name, value in mapping.items():
        key = f"{prefix}{name if isinstance(name, str) else _shown(name)}"
        if not isinstance(value, Mapping):
            yield key, value
        elif depth == 0:
            yield None, None
        else:
            if not value:
                yield key, None
            yield from _flatten(value, f"{key}.", depth - 1)


def _parts(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel] | None]]:
    """The keys of a model's fields, and the model behind those that are models themselves."""
    for field in model.model_fields.values():
        annotation = field.annotation
        inner = annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None
        yield str(field.validation_alias), inner


def _keys(model: type[BaseModel]) -> set[str]:
    """All dotted keys of a model."""
    keys = set()
    for key, inner in _parts(model):
        keys.update({key} if inner is None else {f"{key}.{inner_key}" for inner_key in _keys(inner)})
    return keys


def _nest(model: type[BaseModel], values: Mapping[str, object]) -> dict[str, object]:
    """Put the keys of models inside the model (TLS) into mappings of their own."""
    nested = dict(values)
    for key, inner in _parts(model):
        if inner is not None:
            inside = f"{key}."
            mine = [name for name in values if name.startswith(inside)]
            nested[key] = {name.removeprefix(inside): nested.pop(name) for name in mine}
    return nested


def _explain(error: ErrorDetails, prefix: str, source: str, unknown: Sequence[str]) -> str:
    """One line for something that pydantic found wrong."""
    expected = error["msg"].removeprefix("Value error, ").replace("Input should be", "expected")
    if not error["loc"]:  # found by a check of the whole model, which names its keys itself
        return f"{expected} in {source}"
    key = prefix + ".".join(str(part) for part in error["loc"])
    if error["type"] == "missing":
        near = _nearest(key, [prefix + name for name in unknown])
        return f"missing key '{key}' in {source}" + (f"; did you mean '{_shown_key(near)}'?" if near else "")
    if key.lower().endswith("password"):
        return f"wrong value for key '{key}' in {source}: expected text; put it in quotes"
    if error["type"] == "string_type":
        expected = "expected text; put it in quotes"
    return f"wrong value for key '{key}' in {source}: {_shown(error['input'])}; {expected}"


def _warn(unknown: Sequence[str], known: Sequence[str], source: str) -> None:
    of_any_model = {key for model in _MODELS for key in _keys(model)}
    for key in unknown:
        unsupported = next((instead for group, instead in _NOT_SUPPORTED.items() if _inside(key, group)), None)
        if unsupported is not None:
            logger.warning("%s: key '%s' has no effect; %s", source, _shown_key(key), unsupported)
        elif key not in of_any_model and not any(_inside(key, name) for name in _WITHOUT_EFFECT):
            near = _nearest(key, known)
            hint = f"; did you mean '{near}'?" if near else ""
            logger.warning("%s: unknown key '%s' is ignored%s", source, _shown_key(key), hint)


def _inside(key: str, group: str) -> bool:
    return key == group or key.startswith(f"{group}.")


def _nearest(key: str, candidates: Sequence[str]) -> str | None:
    """The candidate that was probably meant: differences of case count for nothing."""
    near = [
        (_similarity(key.lower(), candidate.lower()), candidate)
        for candidate in candidates
        if max(len(key), len(candidate)) <= 2 * _SHOWN_LENGTH
    ]
    best = max(near, default=(0.0, None))
    return best[1] if best[0] >= _NEAR else None


def _similarity(left: str, right: str) -> float:
    """0 to 1; 0 also when only the groups before the last dots are alike."""
    ratio = difflib.SequenceMatcher(None, left, right).ratio()
    left_rest, right_rest = left.split("."), right.split(".")
    while left_rest and right_rest and left_rest[0] == right_rest[0]:
        del left_rest[0], right_rest[0]
    if not left_rest or not right_rest:  # a part is missing: storage.admin for storage.admin.port
        return ratio
    rest_ratio = difflib.SequenceMatcher(None, ".".join(left_rest), ".".join(right_rest)).ratio()
    return ratio if rest_ratio >= _REST_NEAR else 0.0


def _shown(value: object) -> str:
    """What was found, for an error text: never long, whatever is in it."""
    try:
        text = _BRIEF.repr(value)
    except ValueError:  # Python does not write numbers with thousands of digits
        text = f"a very large {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}..."


def _shown_key(key: str) -> str:
    return key if key.isprintable() and len(key) <= 2 * _SHOWN_LENGTH else _shown(key).strip("'")


def _one_line(text: object) -> str:
    line = " ".join(str(text).split())
    return line if len(line) <= 4 * _SHOWN_LENGTH else f"{line[: 4 * _SHOWN_LENGTH]}..."


def _check_ports(model: BaseModel, *names: str) -> None:
    """The original's rule: all ports of a node differ. 0 is not a port but a wish for any."""
    taken = set()
    for name in names:
        port = getattr(model, name)
        if port in taken:
            key = type(model).model_fields[name].validation_alias
            raise ValueError(f"Validation failed for {key}: value '{port}' is already taken")
        if port:
            taken.add(port)


def _check_memory(node: str, connections: ConnectionsConfig, size_key: str, size_bytes: int) -> None:
    """One message of the largest size must always get through."""
    if connections.receive_memory_bytes < 2 * size_bytes:
        raise ValueError(
            f"{node}.connections.receiveMemory ({connections.receive_memory_bytes}) must be at least twice "
            f"{size_key} ({size_bytes})"
        )
