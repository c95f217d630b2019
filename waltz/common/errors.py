"""The root of the exceptions that this package raises on purpose.

Anything that is not a :class:`WaltzError` (or an ``OSError`` from the operating system) is a defect.
"""


class WaltzError(Exception):
    """Base of all errors of this package. The text is one line: what is wrong and, if there is a remedy, what to do."""


class ConfigError(WaltzError):
    """A configuration file or option is missing, misspelt or has an impossible value."""


class ProtocolError(WaltzError):
    """A peer sent bytes that its protocol does not allow, or a message cannot be said in the negotiated version.

    The connection it came from is closed; nothing was done on behalf of the offending bytes.
    """


class ConnectFailedError(WaltzError):
    """A connection could not be established: refused, timed out, TLS failure, or no common protocol version."""


class ConnectionClosedError(WaltzError):
    """The connection closed while an answer was awaited; whether the peer acted on the request is unknown."""


class DeadlineExceededError(WaltzError):
    """A peer did not answer in time; whether it acted on the request is unknown."""
