"""Sets the properties of a partition in ZooKeeper for clients that may not write there."""

import json
from typing import Any, Final, NamedTuple

from waltz.common.errors import WaltzError
from waltz.common.trim_point import TRIM_POINT
from waltz.common.wire.partition_properties import SetPropertiesStatus
from waltz.common.zk.client import BadVersionError, NodeExistsError, Nodes, NoNodeError
from waltz.common.zk.paths import ClusterPaths
from waltz.server.partition.append_rule import append_rule

MAX_PROPERTIES_BYTES: Final = 32 << 10
"""Limit of the properties of a partition, as JSON."""

_CHANGE: Final = "change"
"""The counter's key in the node."""


class PropertiesSet(NamedTuple):
    """The outcome, as the answer has it."""

    status: SetPropertiesStatus
    change: int
    error: str | None = None


async def set_properties(nodes: Nodes, root: str, partition_id: int, change: int, text: str) -> PropertiesSet:
    """Replace the properties of a partition that have had ``change`` changes; the trim point stays.

    Servers do not know all properties. They refuse what they could not obey themselves; that the others are valid is
    the duty of the client, as it is when it writes to ZooKeeper.

    Raises ``WaltzError`` if ZooKeeper fails: after a ``ConnectionLossError`` the properties may have been set.
    """
    path = ClusterPaths.of(root).partition_properties(partition_id)
    try:
        fields = _fields(text)
    except ValueError as error:
        return PropertiesSet(SetPropertiesStatus.FAILED, -1, str(error))
    while True:
        present, version = await _read(nodes, path)
        before = present.get(_CHANGE, 0)
        if before != change:
            return PropertiesSet(SetPropertiesStatus.CHANGED, before)
        trimmed = {TRIM_POINT: present[TRIM_POINT]} if TRIM_POINT in present else {}
        data = json.dumps({**fields, **trimmed, _CHANGE: before + 1}, sort_keys=True).encode()
        try:
            if version is None:
                await nodes.create(path, data, make_path=True)
            else:
                await nodes.set(path, data, version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            continue
        return PropertiesSet(SetPropertiesStatus.DONE, before + 1)


def _fields(text: str) -> dict[str, Any]:
    """Raises ``ValueError``: the server could not obey such properties, or they are not a client's to set."""
    if len(text.encode()) > MAX_PROPERTIES_BYTES:
        raise ValueError(f"the properties have more than {MAX_PROPERTIES_BYTES} bytes")
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("the properties are no JSON") from None
    append_rule(fields)
    for key in (TRIM_POINT, _CHANGE):
        if key in fields:
            raise ValueError(f"{key} is no property that can be set")
    return dict(fields)


async def _read(nodes: Nodes, path: str) -> tuple[dict[str, Any], int | None]:
    """The node's content, and its version; ``None`` without a node. Raises ``WaltzError``."""
    try:
        data, stat = await nodes.get(path)
    except NoNodeError:
        return {}, None
    try:
        fields = json.loads(data or b"")
        append_rule(fields)
        if type(fields[_CHANGE]) is not int:
            raise ValueError("no number")
    except (ValueError, KeyError, RecursionError):
        raise WaltzError(f"{path} does not hold properties of a partition") from None
    return fields, stat.version
