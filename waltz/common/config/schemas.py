"""The configuration of all processes, clients and tools: the original's YAML keys as typed models.

Attribute names of the models are Python's and carry units; the keys stay those of the original.
:mod:`waltz.common.config.reader` reads them. The text below a key is its entry in docs/configuration.md, written by
``python -m tests.configuration_page``; a sentence that begins with "Default:" describes a computed default.
"""

import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, model_validator

from waltz.common.config.reader import (
    ForeignKeys,
    Given,
    ModelT,
    NoEffect,
    Reading,
    Unknown,
    examine,
    keys,
    settle,
)
from waltz.common.config.yaml_file import read_yaml
from waltz.common.partition_ids import ids_in

_CHECK_HOSTNAME = "checkHostname"

_NOTHING: Mapping[str, Given] = {}

MAX_LOCKS = 10_000
"""Default of the maximum number of locks of a transaction."""


MAY_BE_OPEN = ("/buildinfo", "/health", "/metrics", "/metrics/prometheus")
"""The paths that a configuration may open to everybody, for probes and monitoring."""

TOKENS_NEED_TRUST = "a token needs TLS and trustStore.location: this side presents it only to peers that it can trust"
"""The error of a token in a configuration without TLS or trust store."""


def _not_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("expected a number")
    return value


def _lower_case(value: object) -> object:
    return value.lower() if isinstance(value, str) else value


def _check_rules(acl: "AclConfig", tls: "TlsConfig", prefix: str) -> None:
    """``prefix`` is that of the keys, with its dot."""
    if acl.audit_log is not None and not acl.enabled:
        raise ValueError(f"{prefix}acl.auditLog needs {prefix}acl.enabled: without access rules nothing is audited")
    if acl.enabled and (tls.plaintext or tls.trust_store_location is None):
        raise ValueError(
            f"{prefix}acl.enabled needs TLS with {prefix}ssl.trustStore.location: without a trust store all peers "
            "are anonymous, since no certificate is verified"
        )
    if acl.token_keys is not None and not acl.enabled:
        raise ValueError(f"{prefix}acl.tokens.keys has an effect only with {prefix}acl.enabled: true")
    if acl.withdrawn_tokens is not None and acl.token_keys is None:
        raise ValueError(f"{prefix}acl.tokens.withdrawn has an effect only with {prefix}acl.tokens.keys")


def _check_acl(acl: "AclConfig", tls: "TlsConfig", connections: "ConnectionsConfig", prefix: str) -> None:
    _check_rules(acl, tls, f"{prefix}.")
    if connections.max_per_principal is not None and not acl.enabled:
        raise ValueError(
            f"{prefix}.connections.maxPerPrincipal has an effect only with {prefix}.acl.enabled: true, since without "
            "access rules no peer has a principal"
        )
    if tls.token is not None or tls.token_location is not None:
        raise ValueError(f"{prefix}.ssl.token is for clients and tools: nodes are known by their certificates")


def _user(value: object) -> object:
    if isinstance(value, str) and re.fullmatch(r"[^\s:]{1,128}", value) is None:
        raise ValueError("expected a name of at most 128 characters, without colons and blanks")
    return value


def _check_http(http: "HttpConfig", port: int | None, acl: "AclConfig", tls: "TlsConfig", prefix: str) -> None:
    _check_https(http.tls, port, tls, prefix)
    _check_open(http.open, acl, f"{prefix}.")


def _check_open(paths: str | None, acl: "AclConfig", prefix: str) -> None:
    if paths is not None and not acl.enabled:
        raise ValueError(
            f"{prefix}http.open has an effect only with {prefix}acl.enabled: true, since without access rules "
            "everybody may read all paths"
        )


def _check_https(wanted: bool, port: int | None, tls: "TlsConfig", prefix: str) -> None:
    if wanted and port is None:
        raise ValueError(f"{prefix}.http.tls has an effect only with {prefix}.jetty.port, the port of the endpoints")
    if wanted and tls.plaintext:
        raise ValueError(f"{prefix}.http.tls needs TLS, which {prefix}.ssl.plaintext turns off")


def _open_paths(value: str | None) -> str | None:
    if value is None:
        return None
    found = [part.strip() for part in value.split(",")]
    unknown = sorted(set(found) - set(MAY_BE_OPEN))
    if unknown:
        raise ValueError(f"{unknown[0]!r} cannot be open; possible paths are {', '.join(MAY_BE_OPEN)}")
    return ",".join(found)


def _partition_list(value: str | None) -> str | None:
    if value is not None:
        ids_in(value)
    return value


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
_User = Annotated[str | None, BeforeValidator(_user)]
_RootPath = Annotated[str, BeforeValidator(_root_path)]

_CONTENT_DECIDES = NoEffect("the content of the file decides")
_ONLY_CHECKED = NoEffect("the only check is that it is larger than server.minFetchSize")


class _Model(BaseModel):
    """Base of all models: immutable, no unknown attributes, made by attribute name or from a file's keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)


class TlsConfig(_Model):
    """The keys below ``server.ssl``, ``storage.ssl``, ``client.ssl`` or ``ssl``.

    Without a key store a self-signed certificate is made. Without a trust store peers are not verified; a trust store
    makes client certificates mandatory. The type keys are accepted, but the contents of the files decide.

    Other keys are extensions. ``plaintext`` turns TLS off: peers of the original cannot talk to such a node.
    ``check_hostname``, with a trust store: the certificate of a peer must have the host name of the connection. The
    check is on by default, but off in a configuration file without the key, since the file may be the original's, and
    the original never checks.

    Examples:
        ```python
        from pydantic import SecretStr

        from waltz.common.config.schemas import TlsConfig

        tls = TlsConfig(
            key_store_location="/etc/waltz/client.p12",
            key_store_password=SecretStr("..."),
            trust_store_location="/etc/waltz/ca.pem",
        )
        client = waltz.connect(zookeeper_connect_string="zoo-1.example.com:2181", cluster_root="/waltz", tls=tls)
        ```
    """

    key_store_location: _Text | None = Field(default=None, validation_alias="keyStore.location")
    """File with the private key and its certificates, PKCS#12 or PEM. Without the file, a node makes a self-signed
    certificate at every start; clients and tools have no certificate."""
    key_store_password: SecretStr | None = Field(default=None, validation_alias="keyStore.password")
    """Password of that file; required for PKCS#12."""
    key_store_type: Annotated[str | None, _CONTENT_DECIDES] = Field(default=None, validation_alias="keyStore.type")
    """Such as ``JKS``."""
    trust_store_location: _Text | None = Field(default=None, validation_alias="trustStore.location")
    """File with the trusted certificates, PKCS#12 or PEM. With the file, every peer must have a certificate signed by
    one of them; without the file, no peer is verified."""
    trust_store_password: SecretStr | None = Field(default=None, validation_alias="trustStore.password")
    """Password of that file; required for PKCS#12."""
    trust_store_type: Annotated[str | None, _CONTENT_DECIDES] = Field(default=None, validation_alias="trustStore.type")
    """Such as ``JKS``."""
    crl_location: _Text | None = Field(default=None, validation_alias="crl.location")
    """File with [revocation lists](security.md#revocation), PEM or DER. Peers with a revoked certificate are refused,
    and all peers of an authority without a list that has not expired. Needs a trust store."""
    plaintext: bool = Field(default=False, validation_alias="plaintext")
    """No TLS. The original's nodes and clients cannot connect then."""
    token_location: _Text | None = Field(default=None, validation_alias="token.location")
    """File with a [token](security.md#tokens), for clients and tools without a certificate. The file is read for each
    connection, and again before the token expires. Needs a trust store."""
    token: SecretStr | None = Field(default=None, validation_alias="token.value")
    """The token itself instead of a file, for programs that end before the token expires."""
    check_hostname: bool = Field(default=True, validation_alias=_CHECK_HOSTNAME)
    """With a trust store: a peer's certificate must have the host name of the connection. Default: ``false`` in a
    file, as in the original; ``true`` without a file."""

    @model_validator(mode="after")
    def _check_crl(self) -> Self:
        if self.crl_location is not None and (self.plaintext or self.trust_store_location is None):
            raise ValueError(
                "crl.location needs TLS and trustStore.location: without a trust store no certificate is verified"
            )
        return self

    @model_validator(mode="after")
    def _check_token(self) -> Self:
        if self.token is None and self.token_location is None:
            return self
        if self.token is not None and self.token_location is not None:
            raise ValueError("there are two tokens: give either token.location or token.value")
        if self.plaintext or self.trust_store_location is None:
            raise ValueError(TOKENS_NEED_TRUST)
        return self


class ConnectionsConfig(_Model):
    """The keys below ``server.connections`` or ``storage.connections``: limits of the cost of peers; extensions.

    Times are in milliseconds and sizes in bytes. The defaults are those of servers.
    """

    max: _Positive = Field(default=10_000, validation_alias="max")
    """Maximum connections to the client port, or the data port; fewer if the limit of open files is lower."""
    max_per_address: _Positive = Field(default=5000, validation_alias="maxPerAddress")
    """Maximum connections from one address."""
    max_per_principal: _Positive | None = Field(default=None, validation_alias="maxPerPrincipal")
    """Maximum connections of one [principal](security.md#principals), with access rules, counted from their first
    message on. `anonymous` peers, super principals, and principals with the right `cluster` have no such limit."""
    hello_timeout_ms: _Positive = Field(default=10_000, validation_alias="helloTimeout")
    """Time limit of the TLS handshake, and again of the peer's hello."""
    frame_timeout_ms: _Positive = Field(default=60_000, validation_alias="frameTimeout")
    """Within this time an incomplete message must end, or grow by 64 KiB."""
    unread_timeout_ms: _Positive = Field(default=600_000, validation_alias="unreadTimeout")
    """Within this time a peer with more than 1 MiB of unread data must read all of it, or 64 KiB."""
    receive_memory_bytes: _Positive = Field(default=256 << 20, validation_alias="receiveMemory")
    """Maximum memory of all incomplete messages. At least twice the maximum message."""
    send_memory_bytes: _Positive = Field(default=1 << 30, validation_alias="sendMemory")
    """Maximum memory of all unsent bytes to slow readers."""


class StorageConnectionsConfig(ConnectionsConfig):
    """The keys below ``storage.connections``, with other defaults: few peers, large messages, quick readers."""

    max: _Positive = Field(default=2000, validation_alias="max")
    max_per_address: _Positive = Field(default=1000, validation_alias="maxPerAddress")
    unread_timeout_ms: _Positive = Field(default=60_000, validation_alias="unreadTimeout")
    receive_memory_bytes: _Positive = Field(default=1 << 30, validation_alias="receiveMemory")
    max_admin: _Positive = Field(default=100, validation_alias="maxAdmin")
    """Maximum connections to the admin port."""


class AclConfig(_Model):
    """The keys below ``server.acl``, ``storage.acl``, ``archive.acl`` or ``acl``: access rules; extensions."""

    enabled: bool = Field(default=False, validation_alias="enabled")
    """Apply the cluster's [access rules](security.md#access-rules) to each request."""
    super_principals: _Text | None = Field(default=None, validation_alias="superPrincipals")
    """Principals with all rights at this node, regardless of the rules, separated by semicolons."""
    token_keys: _Text | None = Field(default=None, validation_alias="tokens.keys")
    """File with the keys that verify the [tokens](security.md#tokens) of clients without certificates, as a JSON Web
    Key Set. Without the file, tokens are refused."""
    token_algorithms: _Text = Field(default="ES256", validation_alias="tokens.algorithms")
    """Allowed algorithms of these keys, separated by commas."""
    withdrawn_tokens: _Text | None = Field(default=None, validation_alias="tokens.withdrawn")
    """File with the ids (``jti``) of withdrawn tokens, one per line. With the file, every token needs an id."""
    token_leeway_ms: _NotNegative = Field(default=30_000, validation_alias="tokens.leeway")
    """Maximum difference between the clocks of a token's issuer and of this node, in milliseconds."""
    principal_from: _Text = Field(default="subject", validation_alias="principalFrom")
    """Sources of the name of a certificate, separated by commas; the first one with a name counts. ``subject``;
    ``uri``: the only URI of the alternative names, such as a SPIFFE id; ``dns``: the first DNS name there."""
    principal_mapping: _Text | None = Field(default=None, validation_alias="principalMapping")
    """Rules in Kafka's syntax that turn that name into a [principal](security.md#principals). Without rules the name is
    the principal."""
    audit_log: _Text | None = Field(default=None, validation_alias="auditLog")
    """File of the [audit log](security.md#audit-log), with lines of JSON. Without the key there is no audit log."""


class HttpConfig(_Model):
    """The keys below ``server.http``, ``storage.http`` or ``archive.http``: access to HTTP endpoints; extensions."""

    tls: bool = Field(default=False, validation_alias="tls")
    """[HTTPS](security.md#http-ports) instead of HTTP, with the key store and the trust store of the node."""
    open: Annotated[str | None, AfterValidator(_open_paths)] = Field(default=None, validation_alias="open")
    """Paths that everybody may read (besides ``/ping``) regardless of the access rules, separated by commas. Possible
    paths: ``/buildinfo``, ``/health``, ``/metrics``, ``/metrics/prometheus``."""

    @property
    def open_paths(self) -> tuple[str, ...]:
        """The paths of :attr:`open`."""
        return () if self.open is None else tuple(self.open.split(","))


class ClusterConfig(_Model):
    """The address of the cluster: the common part of the configurations of all processes."""

    zookeeper_connect_string: _Text = Field(validation_alias="zookeeper.connectString")
    """The ZooKeeper ensemble: ``host:port,host:port,...``."""
    cluster_root: _RootPath = Field(validation_alias="cluster.root")
    """The path of the cluster in ZooKeeper."""
    zookeeper_session_timeout_ms: _Positive = Field(validation_alias="zookeeper.sessionTimeout")
    """Time without contact after which ZooKeeper ends the session; other servers then take the partitions."""
    zookeeper_user: _User = Field(default=None, validation_alias="zookeeper.user")
    """User of this process in a [protected](security.md#zookeeper) tree."""
    zookeeper_password: SecretStr | None = Field(default=None, validation_alias="zookeeper.password")
    """Password of that user."""
    zookeeper_password_file: str | None = Field(default=None, validation_alias="zookeeper.passwordFile")
    """File with the password, read once at the start."""
    zookeeper_ssl_enabled: bool = Field(default=False, validation_alias="zookeeper.ssl.enabled")
    """TLS to ZooKeeper, with the key store and the trust store of this process. The connect string has to name TLS
    ports then."""

    @model_validator(mode="after")
    def _check_user(self) -> Self:
        passwords = [each for each in (self.zookeeper_password, self.zookeeper_password_file) if each is not None]
        if self.zookeeper_user is None and passwords:
            raise ValueError("a password of ZooKeeper needs zookeeper.user")
        if self.zookeeper_user is not None and len(passwords) != 1:
            raise ValueError("zookeeper.user needs either zookeeper.password or zookeeper.passwordFile")
        if self.zookeeper_password is not None and not self.zookeeper_password.get_secret_value():
            raise ValueError("zookeeper.password is empty")
        return self


class ServerConfig(ClusterConfig):
    """Configuration of a server node. ``tls`` serves the client port and the connections to storages."""

    server_port: _Port = Field(validation_alias="server.port")
    """Port for clients."""
    server_host: _Text = Field(default_factory=lambda: socket.getfqdn(), validation_alias="server.host")
    """The host name for clients. Default: the canonical name of this host, as in the original."""
    server_bind_address: _Text = Field(
        default_factory=lambda data: data.get("server_host", ""), validation_alias="server.bindAddress"
    )
    """Address to listen on. Default: the address of ``server.host``."""
    server_jetty_port: _Port | None = Field(default=None, validation_alias="server.jetty.port")
    """Port of the HTTP endpoints."""
    console_enabled: bool = Field(default=True, validation_alias="server.console.enabled")
    """Serve the web console at ``server.jetty.port``."""
    optimistic_lock_table_size: _Positive = Field(default=30_000, validation_alias="server.optimisticLockTableSize")
    """Slots of each partition's lock table, 8 bytes each. Locks that share a slot conflict."""
    feed_cache_size_bytes: _NotNegative = Field(default=64 << 20, validation_alias="server.feedCacheSize")
    """Cache of committed request ids and headers, shared by all partitions."""
    min_fetch_size: _Positive = Field(default=100, validation_alias="server.minFetchSize")
    """Minimum transactions sent for one feed request; smaller than ``server.realtimeThreshold``."""
    min_fence_interval_ms: _NotNegative = Field(default=100, validation_alias="server.minFenceInterval")
    """Minimum time between two fences of a partition; earlier requests wait."""
    realtime_threshold: Annotated[_Positive, _ONLY_CHECKED] = Field(
        default=1000, validation_alias="server.realtimeThreshold"
    )
    """In the original: the maximum lag of a client that counts as current."""
    transaction_data_cache_size_bytes: _NotNegative = Field(
        default=128 << 20, validation_alias="server.transactionDataCacheSize"
    )
    """Cache of committed transactions with their data, shared by all partitions."""
    transaction_data_cache_allocation: Annotated[
        Literal["heap", "direct"], BeforeValidator(_lower_case), NoEffect("Python has one kind of memory")
    ] = Field(default="heap", validation_alias="server.transactionDataCacheAllocation")
    """In the original: the kind of Java memory for the cache."""
    max_transaction_size_bytes: _Positive = Field(default=32 << 20, validation_alias="server.maxTransactionSize")
    """Maximum size of the data of an append."""
    max_locks_per_transaction: _Positive = Field(default=MAX_LOCKS, validation_alias="server.maxLocksPerTransaction")
    """Maximum number of locks of an append, all kinds together."""
    append_memory_bytes: _Positive = Field(
        default_factory=lambda data: max(1 << 30, 4 * data.get("max_transaction_size_bytes", 0)),
        validation_alias="server.appendMemory",
    )
    """Maximum memory of all appends that are uncommitted, waiting, or kept for lagging storages. Default: 1 GiB, or
    four times ``server.maxTransactionSize`` if that is more."""
    storage_max_batch_size: _Positive = Field(default=1000, validation_alias="storage.maxBatchSize")
    """Maximum records in one write to a storage. A write has at most 1 MiB, or one record. 100 in the original."""
    storage_initial_retry_interval_ms: _Positive = Field(default=100, validation_alias="storage.initialRetryInterval")
    """Pause between the first two attempts to reach a storage; doubled after each attempt."""
    storage_max_retry_interval_ms: _Positive = Field(default=20_000, validation_alias="storage.maxRetryInterval")
    """Maximum pause between two attempts to reach a storage."""
    storage_checkpoint_interval: _Positive = Field(default=250_000, validation_alias="storage.checkpointInterval")
    """Number of transactions after which a store session is renewed."""
    retention_interval_ms: _Positive = Field(default=300_000, validation_alias="server.retentionInterval")
    """Time between two trims of a partition by its retention properties."""
    connections: ConnectionsConfig = Field(default_factory=ConnectionsConfig, validation_alias="server.connections")
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="server.ssl")
    acl: AclConfig = Field(default_factory=AclConfig, validation_alias="server.acl")
    http: HttpConfig = Field(default_factory=HttpConfig, validation_alias="server.http")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_ports(self, "server_port", "server_jetty_port")
        _check_acl(self.acl, self.tls, self.connections, "server")
        _check_http(self.http, self.server_jetty_port, self.acl, self.tls, "server")
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


class StorageConfig(ClusterConfig):
    """Configuration of a storage node. ``tls`` serves both of its ports."""

    storage_port: _Port = Field(validation_alias="storage.port")
    """The data port, for servers."""
    storage_admin_port: _Port = Field(validation_alias="storage.admin.port")
    """The admin port, for tools."""
    storage_jetty_port: _Port | None = Field(default=None, validation_alias="storage.jetty.port")
    """Port of the HTTP endpoints."""
    storage_directory: _Text = Field(validation_alias="storage.directory")
    """Directory of the log. The directory must exist, and belongs to one cluster."""
    storage_directories: _Text | None = Field(default=None, validation_alias="storage.directories")
    """Directories on [several disks](storage.md#several-disks), separated by commas; ``storage.directory`` first. New
    partitions are spread over the directories."""
    storage_bind_address: _Text = Field(
        default_factory=lambda: socket.gethostname(), validation_alias="storage.bindAddress"
    )
    """Address to listen on. Default: the address of this host's name, as in the original."""
    segment_size_threshold_bytes: Annotated[_Integer, Field(ge=128)] = Field(
        default=1_000_000_000, validation_alias="storage.segment.size.threshold"
    )
    """Size of a segment after which a new one begins."""
    segment_cache_capacity: _Positive = Field(default=5, validation_alias="storage.segment.cache.capacity")
    """Number of older segments that a partition keeps open; two files each."""
    journal_enabled: bool = Field(default=False, validation_alias="storage.journal.enabled")
    """Sync one journal for the appends of all partitions of a disk, and the segments later."""
    max_request_size_bytes: _Positive = Field(default=512 << 20, validation_alias="storage.maxRequestSize")
    """Maximum message of a peer, such as a batch of a server."""
    connections: StorageConnectionsConfig = Field(
        default_factory=StorageConnectionsConfig, validation_alias="storage.connections"
    )
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="storage.ssl")
    acl: AclConfig = Field(default_factory=AclConfig, validation_alias="storage.acl")
    http: HttpConfig = Field(default_factory=HttpConfig, validation_alias="storage.http")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_ports(self, "storage_port", "storage_admin_port", "storage_jetty_port")
        if self.storage_directories is not None and self._directories[0] != self.storage_directory:
            raise ValueError(
                f"storage.directories begins with {self._directories[0]!r}: the first directory has to be "
                f"storage.directory, {self.storage_directory!r}"
            )
        if not all(self._directories):
            raise ValueError("storage.directories has an empty entry: the directories are separated by commas")
        _check_acl(self.acl, self.tls, self.connections, "storage")
        _check_http(self.http, self.storage_jetty_port, self.acl, self.tls, "storage")
        _check_memory("storage", self.connections, "storage.maxRequestSize", self.max_request_size_bytes)
        return self

    @property
    def _directories(self) -> list[str]:
        return [each.strip() for each in (self.storage_directories or self.storage_directory).split(",")]

    @property
    def further_directories(self) -> list[str]:
        """The directories besides ``storage_directory``."""
        return self._directories[1:] if self.storage_directories is not None else []


class ArchiveConfig(ClusterConfig):
    """Configuration of an archiver. ``tls`` serves the connections to servers and storages."""

    zookeeper_session_timeout_ms: _Positive = Field(default=30_000, validation_alias="zookeeper.sessionTimeout")
    """Time without contact after which ZooKeeper ends the session; other archivers then take over."""
    archive_url: _Text = Field(validation_alias="archive.url")
    """The [address](archive.md#addresses) of the object store."""
    object_transactions: _Positive = Field(default=1_000_000, validation_alias="archive.objectTransactions")
    """Maximum number of transactions of an object."""
    object_size_bytes: _Positive = Field(default=64 << 20, validation_alias="archive.objectSize")
    """Maximum bytes of the records of an object; a single larger record is an object of its own. An archiver needs the
    memory of three objects for each of ``archive.partitionsAtOnce``."""
    max_age_ms: _Positive = Field(default=600_000, validation_alias="archive.maxAge")
    """Age after which committed transactions are archived even if they do not fill an object."""
    interval_ms: _Positive = Field(default=5000, validation_alias="archive.interval")
    """Pause between two checks for committed transactions."""
    rate_bytes: _Positive = Field(default=100_000_000, validation_alias="archive.rate")
    """Maximum bytes read from storages per second."""
    partitions_at_once: _Positive = Field(default=2, validation_alias="archive.partitionsAtOnce")
    """Maximum number of partitions archived concurrently."""
    archive_jetty_port: _Port | None = Field(default=None, validation_alias="archive.jetty.port")
    """Port of the HTTP endpoints."""
    archive_bind_address: _Text = Field(
        default_factory=lambda: socket.gethostname(), validation_alias="archive.bindAddress"
    )
    """Address of the HTTP endpoints. Default: the address of this host's name."""
    http: HttpConfig = Field(default_factory=HttpConfig, validation_alias="archive.http")
    acl: AclConfig = Field(default_factory=AclConfig, validation_alias="archive.acl")
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="archive.ssl")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_rules(self.acl, self.tls, "archive.")
        _check_http(self.http, self.archive_jetty_port, self.acl, self.tls, "archive")
        if self.acl.enabled and self.archive_jetty_port is None:
            raise ValueError(
                "archive.acl.enabled has an effect only with archive.jetty.port, the port of the endpoints"
            )
        return self


class MirrorConfig(_Model):
    """Configuration of a mirror. ``tls`` serves the HTTP endpoints only: the files of the two clusters have their
    own."""

    source: _Text = Field(validation_alias="mirror.source")
    """[Configuration file of a client](#applications) of the cluster that is mirrored."""
    target: _Text = Field(validation_alias="mirror.target")
    """[Configuration file of a client](#applications) of the cluster that becomes the mirror."""
    partitions: _Text | None = Field(default=None, validation_alias="mirror.partitions")
    """The partitions to mirror, such as ``0-6,7,10-16``. Default: all."""
    tables: _Text | None = Field(default=None, validation_alias="mirror.tables")
    """Those of them that are [tables which both clusters write](mirror.md#two-way). Default: none."""
    window_transactions: _Positive = Field(default=20_000, validation_alias="mirror.window.transactions")
    """Most transactions in flight, for each partition."""
    window_size_bytes: _Positive = Field(default=32 << 20, validation_alias="mirror.window.size")
    """Most bytes of data in flight, for each partition; a single larger transaction is sent alone."""
    max_lag_ms: _Positive = Field(default=60_000, validation_alias="mirror.maxLag")
    """A partition that is later than this makes `/health` fail."""
    mirror_jetty_port: _Port | None = Field(default=None, validation_alias="mirror.jetty.port")
    """Port of the HTTP endpoints."""
    mirror_bind_address: _Text = Field(
        default_factory=lambda: socket.gethostname(), validation_alias="mirror.bindAddress"
    )
    """Address of the HTTP endpoints. Default: the address of this host's name."""
    http_tls: bool = Field(default=False, validation_alias="mirror.http.tls")
    """HTTPS in place of HTTP, with the stores of `mirror.ssl`: with a trust store readers need a certificate."""
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="mirror.ssl")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_https(self.http_tls, self.mirror_jetty_port, self.tls, "mirror")
        chosen, tables = self.partition_ids, self.table_ids
        if chosen is not None and not {*tables} <= {*chosen}:
            raise ValueError("mirror.tables has partitions that are not in mirror.partitions")
        return self

    @property
    def partition_ids(self) -> list[int] | None:
        """The partitions to mirror; ``None``: all."""
        return None if self.partitions is None else ids_in(self.partitions)

    @property
    def table_ids(self) -> list[int]:
        """Those of them that are tables which both clusters write."""
        return [] if self.tables is None else ids_in(self.tables)


class ViewConfig(ClusterConfig):
    """Configuration of a view node. ``tls`` serves its port and the connections to servers."""

    zookeeper_session_timeout_ms: _Positive = Field(default=30_000, validation_alias="zookeeper.sessionTimeout")
    """Time without contact after which ZooKeeper ends the session; clients then turn to other view nodes."""
    view_port: _Port = Field(validation_alias="view.port")
    """Port for the [interface](served-tables.md) to the tables."""
    view_host: _Text = Field(default_factory=lambda: socket.getfqdn(), validation_alias="view.host")
    """The host name for clients. Default: the canonical name of this host."""
    view_bind_address: _Text = Field(
        default_factory=lambda data: data.get("view_host", ""), validation_alias="view.bindAddress"
    )
    """Address to listen on. Default: the address of ``view.host``."""
    view_jetty_port: _Port | None = Field(default=None, validation_alias="view.jetty.port")
    """Port of the HTTP endpoints."""
    view_directory: _Text = Field(validation_alias="view.directory")
    """Directory of the stores. It belongs to one view node."""
    view_store: _Text = Field(default="rocksdb", validation_alias="view.store")
    """Kind of the [stores](tables.md#stores)."""
    view_partitions: Annotated[str | None, AfterValidator(_partition_list)] = Field(
        default=None, validation_alias="view.partitions"
    )
    """The served partitions, such as ``0-3,7``. Default: all whose property ``format`` is ``table``."""
    view_snapshots: _Text | None = Field(default=None, validation_alias="view.snapshots")
    """Address of an object store with [snapshots](tables.md#snapshots) of the tables, or ``cluster``. A view without
    content begins with the newest one that fits. Default: with the begin of the log."""
    view_zone: _Text | None = Field(default=None, validation_alias="view.zone")
    """Name of the zone of this node, which clients of the same zone prefer."""
    max_requests: _Positive = Field(default=256, validation_alias="view.maxRequests")
    """Requests at a time, watches not counted; further ones are refused for the moment."""
    max_watches: _Positive = Field(default=1000, validation_alias="view.maxWatches")
    """Watches at a time."""
    max_connections: _Positive = Field(default=5000, validation_alias="view.maxConnections")
    """Open connections."""
    request_memory_bytes: _Positive = Field(default=256 << 20, validation_alias="view.requestMemory")
    """Memory of all bodies of requests. A body may be an eighth of it."""
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="view.ssl")
    acl: AclConfig = Field(default_factory=AclConfig, validation_alias="view.acl")
    http: HttpConfig = Field(default_factory=HttpConfig, validation_alias="view.http")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_ports(self, "view_port", "view_jetty_port")
        _check_acl(self.acl, self.tls, ConnectionsConfig(), "view")
        _check_http(self.http, self.view_jetty_port, self.acl, self.tls, "view")
        return self

    @property
    def partition_ids(self) -> list[int] | None:
        """The ids of ``view.partitions``."""
        return None if self.view_partitions is None else ids_in(self.view_partitions)


class ClientConfig(ClusterConfig):
    """Configuration of the client library. Names have units: milliseconds and bytes.

    Examples:
        ```python
        from waltz.common.config.schemas import TlsConfig

        config = waltz.ClientConfig(
            zookeeper_connect_string="zoo-1.example.com:2181,zoo-2.example.com:2181",
            cluster_root="/waltz",
            tls=TlsConfig(trust_store_location="/etc/waltz/ca.pem"),
        )
        client = waltz.connect(config)  # to be opened with `async with`
        ```
    """

    zookeeper_session_timeout_ms: _Positive = Field(default=30_000, validation_alias="zookeeper.sessionTimeout")
    """Time without contact after which ZooKeeper ends the session."""
    zookeeper_connect_timeout_ms: _Positive = Field(default=30_000, validation_alias="zookeeper.connectTimeout")
    """Time limit for a session with ZooKeeper when a client opens."""
    auto_mount: bool = Field(default=True, validation_alias="client.autoMount")
    """A client with callbacks mounts all partitions when it is opened."""
    num_transaction_retry_threads: _NotNegative = Field(default=1, validation_alias="client.numTransactionRetryThreads")
    """0: no retries. All other numbers mean retries."""
    num_consumer_threads: _Positive = Field(default=10, validation_alias="client.numConsumerThreads")
    """Maximum number of partitions that apply transactions concurrently."""
    long_wait_threshold_ms: _Positive = Field(default=5000, validation_alias="client.longWaitThreshold")
    """Time after which a client asks the server for the outcome of an append."""
    max_concurrent_transactions: _Positive = Field(default=5, validation_alias="client.maxConcurrentTransactions")
    """Maximum number of transactions in flight per partition."""
    max_transaction_size_bytes: _Positive = Field(default=32 << 20, validation_alias="client.maxTransactionSize")
    """Maximum size of the data of a transaction."""
    max_locks_per_transaction: _Positive = Field(default=MAX_LOCKS, validation_alias="client.maxLocksPerTransaction")
    """Maximum number of locks of a transaction, all kinds together."""
    enable_session_write: bool = Field(default=False, validation_alias="client.enableSessionWrite")
    """Appends belong to a write session, and are refused after a newer session has begun."""
    enable_exclusive_session: bool = Field(default=False, validation_alias="client.enableExclusiveSession")
    """The write session is exclusive; needs ``client.enableSessionWrite``."""
    session_fallback: Literal["error", "plain"] = Field(default="error", validation_alias="client.sessionFallback")
    """With servers that lack write sessions: refuse appends (``error``), or send them without a session (``plain``)."""
    session_timeout_ms: _Positive = Field(default=30_000, validation_alias="client.sessionTimeout")
    """Time limit of a fence, and of a renewal of the write session."""
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="client.ssl")


class CliConfig(ClusterConfig):
    """Configuration of the administration tools."""

    zookeeper_session_timeout_ms: _Positive = Field(default=30_000, validation_alias="zookeeper.sessionTimeout")
    """Time without contact after which ZooKeeper ends the session."""
    zookeeper_connect_timeout_ms: _Positive = Field(default=10_000, validation_alias="zookeeper.connectTimeout")
    """Time limit for a tool's session with ZooKeeper."""
    http_tls: bool = Field(default=False, validation_alias="http.tls")
    """Tools read HTTP endpoints over TLS (see ``server.http.tls``), and present their certificate or token. The
    endpoints of a [bot](bot.md) also use TLS; with a trust store, their readers need a certificate, unless
    ``acl.enabled`` is set."""
    http_open: Annotated[str | None, AfterValidator(_open_paths)] = Field(default=None, validation_alias="http.open")
    """As ``server.http.open``, for the HTTP endpoints of a [bot](bot.md)."""
    acl: AclConfig = Field(default_factory=AclConfig, validation_alias="acl")
    tls: TlsConfig = Field(default_factory=TlsConfig, validation_alias="ssl")

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_rules(self.acl, self.tls, "")
        _check_open(self.http_open, self.acl, "")
        if self.http_tls and self.tls.plaintext:
            raise ValueError("http.tls needs TLS, which ssl.plaintext turns off")
        return self


MODELS = (ServerConfig, StorageConfig, ArchiveConfig, MirrorConfig, ViewConfig, ClientConfig, CliConfig)

_NO_GRAPHITE = "there is no Graphite here; read the metrics from /metrics/prometheus on {part}.jetty.port"

FOREIGN = ForeignKeys(
    models=MODELS,
    without_effect={
        "server.region": NoEffect("servers of the original do not use it either"),
        "client.sessionRetryLost": NoEffect(
            "a lost append of a write session ends with NotAppendedError; the application appends again",
            is_harmless=False,
        ),
        "client.mockDriver": NoEffect("a program passes a mock driver in place of its configuration"),
        **{
            f"{part}ssl.{manager}.algorithm": NoEffect("Java's TLS only")
            for part in ("", "server.", "storage.", "client.")
            for manager in ("keyManager", "trustManager")
        },
        **{
            f"{part}.graphite": NoEffect(_NO_GRAPHITE.format(part=part), is_harmless=False)
            for part in ("server", "storage")
        },
    },
)
"""Keys of the original without effect in a model, or in this implementation."""


def load(
    path: str | os.PathLike[str],
    model: type[ModelT],
    *,
    prefix: str = "",
    overrides: Mapping[str, Given] = _NOTHING,
    hint: Callable[[str], str] | None = None,
) -> ModelT:
    """Read a YAML file into a model.

    Args:
        path: The file.
        model: The model.
        prefix: Precedes every key of the model, such as ``"server.ssl."``; other keys are ignored.
        overrides: Values that override the file, by keys without the prefix.
        hint: Returns the remedy for a missing key.

    Raises:
        ConfigError: The file or a value is wrong.
    """
    return settle(examine_file(path, model, prefix=prefix, overrides=overrides, hint=hint))


def examine_file(
    path: str | os.PathLike[str],
    model: type[ModelT],
    *,
    prefix: str = "",
    overrides: Mapping[str, Given] = _NOTHING,
    unknown: Sequence[Unknown] = (),
    hint: Callable[[str], str] | None = None,
) -> Reading[ModelT]:
    """Like :func:`load`, but returns all errors and warnings, and the sources of values.

    ``unknown`` is reported together with unknown keys.

    Raises:
        ConfigError: The file cannot be read, or is not a configuration.
    """
    unchecked = {key: False for key in keys(model) if key.rpartition(".")[2] == _CHECK_HOSTNAME}
    return examine(
        read_yaml(path),
        model,
        source=str(path),
        prefix=prefix,
        defaults=unchecked,
        foreign=FOREIGN,
        overrides=overrides,
        unknown=unknown,
        hint=hint,
    )


def from_mapping(
    mapping: Mapping[str, object],
    model: type[ModelT],
    *,
    source: str = "configuration",
    prefix: str = "",
    overrides: Mapping[str, Given] = _NOTHING,
    hint: Callable[[str], str] | None = None,
) -> ModelT:
    """Make a model from a mapping with dotted or nested keys, or any mix.

    ``source`` is the name of the mapping in errors; other arguments as for :func:`load`.

    Raises:
        ConfigError: A key is missing or given twice, a value is wrong, or ports clash.
    """
    return settle(examine_mapping(mapping, model, source=source, prefix=prefix, overrides=overrides, hint=hint))


def examine_mapping(
    mapping: Mapping[str, object],
    model: type[ModelT],
    *,
    source: str,
    prefix: str = "",
    overrides: Mapping[str, Given] = _NOTHING,
    unknown: Sequence[Unknown] = (),
    hint: Callable[[str], str] | None = None,
) -> Reading[ModelT]:
    """Like :func:`from_mapping`, but returns all errors and warnings, as :func:`examine_file` does."""
    return examine(
        mapping,
        model,
        source=source,
        prefix=prefix,
        defaults={},
        foreign=FOREIGN,
        overrides=overrides,
        unknown=unknown,
        hint=hint,
    )


def _check_ports(model: BaseModel, *names: str) -> None:
    """The original's rule: all ports of a node differ. Port 0, for any port, does not count."""
    taken = set()
    for name in names:
        port = getattr(model, name)
        if port in taken:
            key = type(model).model_fields[name].validation_alias
            raise ValueError(f"Validation failed for {key}: value '{port}' is already taken")
        if port:
            taken.add(port)


def _check_memory(node: str, connections: ConnectionsConfig, size_key: str, size_bytes: int) -> None:
    """Check that a message of the maximum size fits into the memory."""
    if connections.receive_memory_bytes < 2 * size_bytes:
        raise ValueError(
            f"{node}.connections.receiveMemory ({connections.receive_memory_bytes}) must be at least twice "
            f"{size_key} ({size_bytes})"
        )
