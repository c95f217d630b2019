"""What a view node says of itself at a partition, in an ephemeral node of ZooKeeper, and the choice of one. Pure."""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

MAX_BYTES = 4096
"""Most bytes of the value of such a node."""


class ViewNode(NamedTuple):
    """A view node of a partition."""

    endpoint: str
    """``https://HOST:PORT`` or ``http://HOST:PORT``."""
    applied: int
    """The last transaction that it had applied when it said so."""
    zone: str | None = None

    def encode(self) -> bytes:
        """The value of the node."""
        fields: dict[str, object] = {"endpoint": self.endpoint, "applied": self.applied}
        if self.zone is not None:
            fields["zone"] = self.zone
        return json.dumps(fields, sort_keys=True).encode()


def decode_view_node(data: bytes | None) -> ViewNode | None:
    """The view node of a value; ``None`` for other values. Further fields may come later, and are passed over."""
    try:
        fields = json.loads(data or b"") if len(data or b"") <= MAX_BYTES else {}
        endpoint, applied, zone = fields["endpoint"], fields["applied"], fields.get("zone")
        url = urlsplit(endpoint)
        if url.scheme not in ("http", "https") or not url.hostname or url.port is None:
            return None
        if url.path or url.query or url.fragment or url.username is not None:
            return None
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if type(applied) is not int or not (zone is None or isinstance(zone, str)):
        return None
    return ViewNode(endpoint, applied, zone)


def in_order_of_choice(
    nodes: Iterable[ViewNode], zone: str | None, shuffle: Callable[[list[ViewNode]], None]
) -> list[ViewNode]:
    """View nodes in the order in which a client tries them: those of its zone first, each group shuffled."""
    ordered = sorted(nodes, key=ViewNode.encode)
    shuffle(ordered)
    return sorted(ordered, key=lambda node: zone is not None and node.zone != zone)
