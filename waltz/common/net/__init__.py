"""Connections: the asyncio side of :mod:`waltz.common.wire`.

1. ``channel``: one connection, with its hello, back pressure and a certain end; ``listener``: a port full of them.
2. ``tls``, ``tls_acceptor``: contexts from the original's key stores, and handshakes that all stay in sight.
3. ``limits``, ``guard``: what a peer may cost; ``progress``: how long one waits for it; ``backoff``: when to try again.
4. ``http``: the endpoints of a node.
"""
