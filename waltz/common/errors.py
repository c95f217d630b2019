"""The root of the exceptions that this package raises on purpose.

Anything that is not a :class:`WaltzError` (or an ``OSError`` from the operating system) is a defect.
"""


class WaltzError(Exception):
    """Base of all errors of this package. The text is one line with the fault and, if there is one, the remedy.

    Examples:
        ```python
        try:
            await client.append(99, b"hello")
        except waltz.WaltzError as error:
            print("Waltz says:", error)
        ```
    """


class ConfigError(WaltzError):
    """A configuration file or option is missing, misspelt or has an impossible value.

    Examples:
        ```python
        try:
            client = waltz.connect({"zookeeper.connectString": "zoo-1:2181", "cluster.rot": "/waltz"})
        except waltz.ConfigError as error:
            print(error)  # it names the key, and the one that was meant
        ```
    """


class ProtocolError(WaltzError):
    """A peer sent bytes that its protocol does not allow, or the negotiated version has no such message.

    The peer's connection is closed; the offending bytes had no effect.

    Examples:
        ```python
        async with waltz.RpcClient(tls=None) as rpc:
            try:
                print(await rpc.server_partition_health(waltz.Endpoint("localhost", port)))
            except waltz.ProtocolError as error:
                print("the server is too old to tell that:", error)
        ```
    """


class ConnectFailedError(WaltzError):
    """A connection could not be established: refused, timed out, TLS failure, or no common protocol version.

    Examples:
        ```python
        async with waltz.RpcClient(tls=None) as rpc:
            try:
                await rpc.server_partition_assignments(waltz.Endpoint("localhost", 1))
            except waltz.ConnectFailedError as error:
                print("nobody listens there:", error)
        ```
    """


class TlsRefusedError(ConnectFailedError):
    """TLS has refused the connection: a certificate is missing or not trusted, or the peer does not use TLS.

    Other attempts fail, too, until a certificate, a trust store or a configuration is changed.
    """


class TokenRefusedError(TlsRefusedError):
    """The peer does not accept this client's token, or no longer: the text says why.

    It is a refusal like those of TLS: other attempts fail, too, until there is another token.
    """


class ConnectionClosedError(WaltzError):
    """The connection closed while an answer was awaited; whether the peer acted on the request is unknown.

    Examples:
        ```python
        async with waltz.RpcClient(tls=None) as rpc:
            try:
                await rpc.add_preferred_partitions(waltz.Endpoint("localhost", port), [0, 1])
            except waltz.ConnectionClosedError as error:
                print("it may have been done:", error)
        ```
    """


class DeadlineExceededError(WaltzError):
    """A peer did not answer in time; whether it acted on the request is unknown.

    Examples:
        ```python
        try:
            print(await client.high_water_mark(0, timeout_s=0.1))
        except waltz.DeadlineExceededError as error:
            print("its server does not answer:", error)
        ```
    """
