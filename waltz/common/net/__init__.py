"""Connections: the asyncio side of :mod:`waltz.common.wire`.

1. ``channel``: one connection, with its hello, back pressure and a certain end; ``listener``: a port full of them;
   ``outbox``: frames of one turn of the loop, written once for each connection.
2. ``tls``, ``tls_renewal``, ``tls_acceptor``: contexts from the original's key stores, their successors when the files
   change, and handshakes; ``followed_files``: the noticing of changes; ``config_files``: checks of the files that a
   configuration names.
3. ``limits``, ``guard``: the cost that a peer may cause; ``progress``: waiting while bytes move; ``backoff``: delays
   between attempts; ``kernel``: the operating system's view of a connection.
4. ``token_sender``, ``token_gate``: bearer tokens, at the client and at the node; ``token_problems``: reasons.
5. ``http``: the endpoints of a node; ``page_rules``: who may read them; ``port_metrics``: the metrics of its ports.
"""
