"""The write session of one partition from the view of one client. Pure.

The rules:

1. A client takes the first number that the server reports, and keeps it until the server reports another number. It
   never takes the other number on its own: an application with appends of unknown outcome first has to find out their
   outcome.
2. A client asks for an exclusive session once. A client that asks later takes the session over. Only the application
   may ask again.
3. There is no silent degradation: a server without write sessions is refused, unless the configuration allows appends
   without a session.
"""

from enum import Enum

from waltz.client.errors import NotAuthorizedError, SessionFencedError, SessionNotSupportedError
from waltz.common.errors import WaltzError
from waltz.common.machine import Machine, Row
from waltz.common.wire.versions import FIRST_WITH_WRITE_SESSION
from waltz.common.wire.write_sessions import NO_WRITE_SESSION, HeartbeatOption, HeartbeatResponse, HeartbeatState


class SessionState(Enum):
    """States of the right to append. The values are texts for people."""

    OFF = "appends go without a session"
    ASKING = "appends wait for the number"
    HELD = "appends carry the number"
    FENCED = "appends are refused here: there is a newer session"
    UNSUPPORTED = "appends are refused here: the server knows no sessions"
    PLAIN = "appends go without a session, because the server knows none"


class SessionEvent(Enum):
    """Events of the session. The values are texts for people."""

    MOUNTED = "the partition is mounted at a server that knows sessions"
    MOUNTED_WITHOUT = "the partition is mounted at a server that knows no sessions"
    MOUNTED_PLAIN = "the partition is mounted at such a server, and the configuration lets appends go without"
    RENEWED_WITHOUT = "the application wants the present number, and the server knows no sessions"
    RENEWED_PLAIN = "the application wants it from such a server, and the configuration lets appends go without"
    TOLD = "the server tells the first number, or the one at hand"
    TOLD_ANOTHER = "the server tells another number, and the application has not asked for it"
    TAKEN = "the application has asked for the number that the server tells"
    HELD_BY_ANOTHER = "another client holds an exclusive session"
    REFUSED = "an append is refused, because a newer session has begun"


_ENABLED = tuple(state for state in SessionState if state is not SessionState.OFF)
_UNFENCED = tuple(state for state in _ENABLED if state is not SessionState.FENCED)
_NEVER_HELD = (SessionState.FENCED, SessionState.UNSUPPORTED, SessionState.PLAIN)

SESSION = Machine[SessionState, SessionEvent, None](
    "a write session",
    (
        Row(SessionEvent.MOUNTED, _UNFENCED, SessionState.ASKING),  # even with a number: its session may have ended
        Row(SessionEvent.MOUNTED_WITHOUT, _UNFENCED, SessionState.UNSUPPORTED),
        Row(SessionEvent.MOUNTED_PLAIN, _UNFENCED, SessionState.PLAIN),
        Row(SessionEvent.RENEWED_WITHOUT, _ENABLED, SessionState.UNSUPPORTED),
        Row(SessionEvent.RENEWED_PLAIN, _ENABLED, SessionState.PLAIN),
        Row(SessionEvent.TOLD, _UNFENCED, SessionState.HELD),
        Row(SessionEvent.TOLD_ANOTHER, _UNFENCED, SessionState.FENCED),
        Row(SessionEvent.TAKEN, _ENABLED, SessionState.HELD),
        Row(SessionEvent.HELD_BY_ANOTHER, _UNFENCED, SessionState.FENCED),
        Row(SessionEvent.REFUSED, (SessionState.ASKING, SessionState.HELD), SessionState.FENCED),
    ),
    ignored=(
        (SessionEvent.MOUNTED, (SessionState.FENCED,)),
        (SessionEvent.MOUNTED_WITHOUT, (SessionState.FENCED,)),
        (SessionEvent.MOUNTED_PLAIN, (SessionState.FENCED,)),
        (SessionEvent.TOLD, (SessionState.FENCED,)),
        (SessionEvent.TOLD_ANOTHER, (SessionState.FENCED,)),
        (SessionEvent.HELD_BY_ANOTHER, (SessionState.FENCED,)),
        (SessionEvent.REFUSED, (*_NEVER_HELD, SessionState.OFF)),
    ),
)
"""The states of a client's write session, and the events that lead from one to another."""


class ClientWriteSession:
    """The state and the number. Without sessions the state stays ``OFF``."""

    __slots__ = (
        "_ask_exclusive",
        "_may_go_without",
        "_partition_id",
        "_renewing",
        "denied",
        "number",
        "renewed",
        "state",
    )

    def __init__(self, partition_id: int, *, enabled: bool, exclusive: bool, may_go_without: bool) -> None:
        """``may_go_without``: appends to a server without sessions go without one."""
        self.state = SessionState.ASKING if enabled else SessionState.OFF
        self.number = NO_WRITE_SESSION
        """The last reported or adopted number."""
        self.renewed = NO_WRITE_SESSION
        """The result of the last renewal. The session may have ended since."""
        self.denied: NotAuthorizedError | None = None
        """The reason why the server does not report the number, if it refuses."""
        self._partition_id = partition_id
        self._ask_exclusive = exclusive
        self._may_go_without = may_go_without
        self._renewing = False

    @property
    def enabled(self) -> bool:
        """Whether appends should carry a number."""
        return self.state is not SessionState.OFF

    @property
    def sends(self) -> bool:
        """Whether appends may be sent."""
        return self.state in (SessionState.OFF, SessionState.HELD, SessionState.PLAIN)

    @property
    def carried(self) -> int:
        """The number that appends carry."""
        return self.number if self.state is SessionState.HELD else NO_WRITE_SESSION

    @property
    def refusal(self) -> WaltzError | None:
        """The reason why appends end immediately, if they do."""
        if self.denied is not None:
            return NotAuthorizedError(str(self.denied))
        if self.state is SessionState.FENCED:
            return SessionFencedError(self._partition_id, self.number)
        if self.state is SessionState.UNSUPPORTED:
            return SessionNotSupportedError(self._partition_id)
        return None

    @property
    def renewing(self) -> bool:
        """Whether a question for the number on behalf of the application is open."""
        return self._renewing

    def mounted(self, version: int) -> HeartbeatOption | None:
        """The partition is mounted at a server of this version. Returns the question for the server."""
        if not self.enabled:
            return None
        if version >= FIRST_WITH_WRITE_SESSION:
            self._meet(SessionEvent.MOUNTED)
            return self.question
        if self._renewing:
            self._meet(SessionEvent.RENEWED_PLAIN if self._may_go_without else SessionEvent.RENEWED_WITHOUT)
        else:
            self._meet(SessionEvent.MOUNTED_PLAIN if self._may_go_without else SessionEvent.MOUNTED_WITHOUT)
        self._renewing = False
        return None

    @property
    def question(self) -> HeartbeatOption:
        """The question for a server."""
        exclusive = HeartbeatOption.EXCLUSIVE if self._ask_exclusive else HeartbeatOption(0)
        return HeartbeatOption.GET_SESSION | exclusive

    def renew(self, *, exclusive: bool) -> None:
        """The application asks for the present number."""
        self._renewing = True
        self._ask_exclusive = exclusive
        self.renewed = NO_WRITE_SESSION

    def end_renewal(self) -> None:
        """The call of the application has ended: no other number is taken on its behalf, and no exclusive session is
        begun, which would have no writer. Only a session that was configured as exclusive stays exclusive."""
        self._renewing = False
        if self.number != NO_WRITE_SESSION:
            self._ask_exclusive = False

    def answered(self, response: HeartbeatResponse) -> bool:
        """The server has answered the question. False if the server has to be asked again.

        Numbers only grow: a server with a smaller number than the present one has lost the partition, and does not know
        it.
        """
        self.denied = None
        if not self.enabled:
            return True
        if response.heartbeat_state is HeartbeatState.NOT_READY:
            return False
        if response.heartbeat_state is HeartbeatState.OK and response.write_session < self.number:
            return False
        if response.heartbeat_state is HeartbeatState.HELD_BY_ANOTHER:
            self._meet(SessionEvent.HELD_BY_ANOTHER)
        elif self._renewing:
            self.renewed = response.write_session
            self.adopt(response.write_session)
        elif self.number in (NO_WRITE_SESSION, response.write_session):
            self._meet(SessionEvent.TOLD)
            if self.state is SessionState.HELD:
                self._hold(response.write_session)
        else:
            self._meet(SessionEvent.TOLD_ANOTHER)
        self._renewing = False
        return True

    def adopt(self, number: int) -> None:
        """Continue with a number that the application has asked for."""
        self._meet(SessionEvent.TAKEN)
        self._hold(number)

    def fenced(self, present_number: int) -> bool:
        """An append was refused. False if the server's number is older: such a server has lost the partition.

        The present number may have been adopted after the append was sent.
        """
        if present_number > self.number:
            self._meet(SessionEvent.REFUSED)
        return present_number >= self.number

    def _hold(self, number: int) -> None:
        self.number = number
        self._ask_exclusive = False

    def _meet(self, event: SessionEvent) -> None:
        self.state = SESSION.after(self.state, event)
