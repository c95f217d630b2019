"""Connections: the asyncio side of :mod:`waltz.common.wire`.

1. ``channel``: one connection, with hello, back pressure and a bounded end; ``listener``: a port and its connections;
   ``outbox``: frames of one turn of the loop, written once for each connection.
2. ``tls``, ``tls_renewal``, ``tls_acceptor``: contexts from the original's key stores, new contexts when the files
   change, and handshakes; ``revocation``: revocation lists; ``followed_files``: detection of changed files;
   ``config_files``: checks of the files in a configuration.
3. ``limits``, ``guard``: the cost that a peer may cause; ``progress``: waiting while bytes move; ``backoff``: delays
   between attempts; ``kernel``: the operating system's view of a connection.
4. ``token_sender``, ``token_gate``: bearer tokens, at the client and at the node; ``token_problems``: reasons of
   refusals.
5. ``http``: the endpoints of a node; ``page_rules``: the right for each page; ``port_metrics``: the metrics of ports.
"""
