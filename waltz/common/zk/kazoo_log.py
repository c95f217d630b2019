"""Turns kazoo's log lines of every attempt to connect into one outage."""

import logging

from kazoo.protocol.serialization import Auth

from waltz.common.quiet_log import OutageLog

REFUSES_USERS = (
    "the server takes no passwords (zookeeper.DigestAuthenticationProvider.enabled=false), and zookeeper.user needs "
    "members that do"
)
"""Why a server refuses a user, whatever the password is."""

_GIVEN_UP = "AUTH_FAILED closing: "
_TROUBLES = ("Connection dropped: ", "Connection time-out: ", "Cannot resolve ")
_WITHOUT_NEWS = ("Transition to CONNECTING", "Failed connecting to Zookeeper within the connection retry policy.")
"""Lines that follow each trouble, and the close of a client without a connection."""


class KazooLog(logging.Filter):
    """Filters the logger of one client. kazoo logs in its connection thread, one record after the other."""

    def __init__(self, logger: logging.Logger) -> None:
        super().__init__()
        self._outage = OutageLog(logger)
        self.troubles: dict[str, None] = {}
        """Why the present attempts to connect fail, without repetitions."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether kazoo's own record is to be logged."""
        if isinstance(record.args, tuple) and any(isinstance(each, Auth) for each in record.args):
            return False  # there is a password in it
        text = record.getMessage()
        if text.startswith(_GIVEN_UP):
            text = f"Connection dropped: {REFUSES_USERS}"
        if text in _WITHOUT_NEWS:
            return False
        if not text.startswith(_TROUBLES):
            return True
        reason = text.removeprefix("Connection dropped: ").removeprefix("socket connection error: ")
        if len(self.troubles) < 4:
            self.troubles[reason] = None
        self._outage.failed(f"no connection to ZooKeeper: {reason}")
        return False

    def connected(self) -> None:
        """End the outage."""
        self.troubles.clear()
        self._outage.over()


def quiet_logger(kazoo_log: KazooLog) -> logging.Logger:
    """A logger for one client: below kazoo's, whose level and handlers it has."""
    logger = logging.Logger("kazoo.client")
    logger.parent = logging.getLogger("kazoo")
    logger.addFilter(kazoo_log)
    return logger
