"""The tables of docs/configuration.md, made from the models: ``python -m tests.configuration_page`` renews them."""

import ast
import functools
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from annotated_types import Ge, Le
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from waltz.common.config.reader import NoEffect
from waltz.common.config.schemas import (
    FOREIGN,
    ArchiveConfig,
    CliConfig,
    ClientConfig,
    MirrorConfig,
    ServerConfig,
    StorageConfig,
    TlsConfig,
    ViewConfig,
)
from waltz.common.config.sources import variable_of

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"

MODELS: dict[str, type[BaseModel]] = {
    "servers": ServerConfig,
    "storages": StorageConfig,
    "archivers": ArchiveConfig,
    "mirrors": MirrorConfig,
    "views": ViewConfig,
    "clients": ClientConfig,
    "tools": CliConfig,
}

_CLUSTER = {"zookeeper.connectString", "zookeeper.sessionTimeout", "cluster.root"}
_TLS = {f"{store}.{key}" for store in ("keyStore", "trustStore") for key in ("location", "password", "type")}
ORIGINAL: dict[str, set[str]] = {
    "servers": {
        *_CLUSTER,
        *("server.port", "server.jetty.port", "server.optimisticLockTableSize", "server.feedCacheSize"),
        *("server.minFetchSize", "server.realtimeThreshold", "server.transactionDataCacheSize"),
        *("server.transactionDataCacheAllocation", "storage.maxBatchSize", "storage.initialRetryInterval"),
        *("storage.maxRetryInterval", "storage.checkpointInterval"),
        *(f"server.ssl.{key}" for key in _TLS),
    },
    "storages": {
        *_CLUSTER,
        *("storage.port", "storage.admin.port", "storage.jetty.port", "storage.directory"),
        *("storage.segment.size.threshold", "storage.segment.cache.capacity"),
        *(f"storage.ssl.{key}" for key in _TLS),
    },
    "archivers": {*_CLUSTER, *(f"archive.ssl.{key}" for key in _TLS)},
    "mirrors": {f"mirror.ssl.{key}" for key in _TLS},
    "views": {*_CLUSTER, *(f"view.ssl.{key}" for key in _TLS)},
    "clients": {
        *_CLUSTER,
        *("client.autoMount", "client.numTransactionRetryThreads", "client.numConsumerThreads"),
        *("client.longWaitThreshold", "client.maxConcurrentTransactions"),
        *(f"client.ssl.{key}" for key in _TLS),
    },
    "tools": {*_CLUSTER, "zookeeper.connectTimeout", *(f"ssl.{key}" for key in _TLS)},
}
"""The keys of Java Waltz 0.13.2 that the models have."""

_HEAD = "| Key, and its environment variable | Type, unit | Default | Effect |\n|---|---|---|---|\n"
_OWN = "°"
_UNITS = {"_ms": "ms", "_bytes": "bytes"}
_DEFAULT = "Default: "
_SHORT = 40
"""Characters of an effect that may stand in two tables."""
_SHARED = re.compile(r"zookeeper\.connectString|cluster\.root|zookeeper\.(?:user|password|passwordFile|ssl\.\w+)")
"""Keys with one name and one meaning in the files of all processes."""
_PREFIXED = re.compile(r"(?:(?!zookeeper)\w+\.)?(?:acl|ssl)\.")
"""Keys that differ only by the process that they begin with."""


class Key(NamedTuple):
    """A line of a table."""

    key: str
    type: str
    default: str
    effect: str
    no_effect: NoEffect | None


def keys_of(model: type[BaseModel], prefix: str = "") -> Iterator[Key]:
    """All keys of a model. Raises ``LookupError`` for one that is not explained where it is declared."""
    for name, field in model.model_fields.items():
        key = f"{prefix}{field.validation_alias}"
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from keys_of(field.annotation, f"{key}.")
            continue
        effect, _, computed = _explained(model, name).partition(_DEFAULT)
        if not effect:
            raise LookupError(f"'{key}' has no explanation below {model.__name__}.{name}")
        no_effect = next((each for each in field.metadata if isinstance(each, NoEffect)), None)
        yield Key(key, _type(name, field), _default(name, field, computed, key), effect.strip(), no_effect)


def _explained(model: type[BaseModel], name: str) -> str:
    """The text below an attribute, in the model or in the nearest one that it inherits from and that has one."""
    for each in model.__mro__:
        if issubclass(each, BaseModel) and each is not BaseModel:
            text = _texts(each).get(name)
            if text:
                return text
    return ""


@functools.cache
def _texts(model: type[BaseModel]) -> dict[str, str]:
    body = ast.parse(textwrap.dedent(inspect.getsource(model))).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for statement, below in zip(body.body, body.body[1:], strict=False):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            match below:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    found[statement.target.id] = " ".join(text.replace("``", "`").split())
    return found


def _type(name: str, field: FieldInfo) -> str:
    kind, bounds = _plain(field.annotation), [*field.metadata, *_inner_bounds(field.annotation)]
    if get_origin(kind) is Literal:
        return " or ".join(f"`{value}`" for value in get_args(kind))
    if kind is bool:
        return "`true` or `false`"
    if kind is SecretStr:
        return "text, hidden"
    if kind is str:
        return "text"
    assert kind is int, (name, kind)
    low = next((each.ge for each in bounds if isinstance(each, Ge)), None)
    high = next((each.le for each in bounds if isinstance(each, Le)), None)
    unit = next((unit for ending, unit in _UNITS.items() if name.endswith(ending)), None)
    if name.endswith("_port"):
        return f"port, {low} to {high}; 0: any"
    assert high is None
    return f"{unit or 'number'}, ≥ {low}"


def _plain(annotation: Any) -> Any:
    """Without ``None``, and without what is only checked."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        return _plain(next(each for each in get_args(annotation) if each is not type(None)))
    return annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation


def _inner_bounds(annotation: Any) -> list[object]:
    """Those of what may be left out."""
    inner = [each for part in get_args(annotation) for each in getattr(part, "__metadata__", ())]
    return [bound for each in inner if isinstance(each, FieldInfo) for bound in each.metadata]


def _default(name: str, field: FieldInfo, computed: str, key: str) -> str:
    if computed:
        return computed.rstrip(". ")
    if field.is_required():
        return "**required**"
    if field.default_factory is not None:
        raise LookupError(f"'{key}' has a computed default: explain it with a sentence that begins with '{_DEFAULT}'")
    if field.default is None:
        return "none"
    if isinstance(field.default, bool | str):
        return f"`{str(field.default).lower()}`"
    return f"{field.default}{_in_words(name, field.default)}"


def _in_words(name: str, number: int) -> str:
    if name.endswith("_ms") and number >= 1000:
        seconds = number / 1000
        return f" ({seconds / 60:g} min)" if seconds >= 60 else f" ({seconds:g} s)"
    if name.endswith("_bytes"):
        for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
            if number and number % size == 0:
                return f" ({number // size} {unit})"
    return ""


def table_of_keys(name: str) -> str:
    """The table of one kind of process, without the keys that have a table for all processes."""
    listed = [key for key in keys_of(MODELS[name]) if not _SHARED.fullmatch(key.key) and not _PREFIXED.match(key.key)]
    if name != "servers":
        listed = [_without_what_servers_say(key) for key in listed]
    return _table(sorted(listed, key=_place), ORIGINAL[name])


def _without_what_servers_say(key: Key) -> Key:
    """A key of another process; one that servers have with the same effect leads to theirs."""
    theirs = f"server.{key.key.partition('.')[2]}"
    same = any(each.key == theirs != key.key and each.effect == key.effect for each in keys_of(ServerConfig))
    return key._replace(effect=f"As `{theirs}`.") if same and len(key.effect) > _SHORT else key


def table_of_shared() -> str:
    """The keys that every process but a mirror has."""
    return _table((key for key in keys_of(CliConfig) if _SHARED.fullmatch(key.key)), ORIGINAL["tools"])


def table_of_access() -> str:
    """The keys of access rules, as tools have them."""
    return _table((key for key in keys_of(CliConfig) if key.key.startswith("acl.")), ORIGINAL["tools"])


def table_of_tls() -> str:
    """The keys of TLS, as tools have them."""
    return _table(keys_of(TlsConfig, "ssl."), ORIGINAL["tools"])


def _table(listed: Iterable[Key], of_java: Set[str]) -> str:
    lines = []
    for key in listed:
        effect = key.effect if key.no_effect is None else f"**None**: {key.no_effect.reason}. {key.effect}"
        names = f"`{key.key}`{'' if key.key in of_java else _OWN}<br>`{variable_of(key.key)}`"
        lines.append(f"| {names} | {key.type} | {key.default} | {effect} |\n")
    return _HEAD + "".join(lines)


def _place(key: Key) -> tuple[bool, bool]:
    """Keys of the cluster first, then required keys; else as declared."""
    return key.key not in _CLUSTER, key.default != "**required**"


def table_of_effectless() -> str:
    """The keys of the original that no model has, those with the same reason together."""
    reasons: dict[str, list[str]] = {}
    for key, why in FOREIGN.without_effect.items():
        reasons.setdefault(why.reason, []).append(f"`{key}{'.*' if key.endswith('.graphite') else ''}`")
    return "| Key | Why |\n|---|---|\n" + "".join(f"| {', '.join(keys)} | {why} |\n" for why, keys in reasons.items())


def written(page: str) -> str:
    """The page with its tables made anew."""
    tables = {name: table_of_keys(name) for name in MODELS}
    tables |= {"all processes": table_of_shared(), "access rules": table_of_access()}
    tables |= {"TLS": table_of_tls(), "keys without effect": table_of_effectless()}
    for name, table in tables.items():
        begin, end = f"<!-- table: {name} -->\n", "<!-- end of table -->"
        before, found, behind = page.partition(begin)
        _, found_end, rest = behind.partition(end)
        assert found, f"docs/configuration.md has no place for the table of {name}"
        assert found_end, f"the place for the table of {name} has no end"
        page = f"{before}{begin}\n{table}\n{end}{rest}"
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
