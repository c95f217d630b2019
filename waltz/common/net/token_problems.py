"""The reasons why tokens prove nothing, as few words for metrics; the texts for people are those of the errors."""

from enum import StrEnum

from waltz.common.errors import WaltzError


class TokenProblem(StrEnum):
    """What is wrong with a token."""

    NO_TLS = "no_tls"
    """Others may have read it on its way."""
    NOT_TAKEN = "not_taken"
    """The node has no keys for tokens."""
    UNREADABLE = "unreadable"
    """It is damaged, too long, or lacks what a token must have."""
    UNKNOWN_KEY = "unknown_key"
    """Its key is not known, or is for another algorithm."""
    WRONG_SIGNATURE = "wrong_signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    OTHER_CLUSTER = "other_cluster"
    WITHDRAWN = "withdrawn"
    OTHER_PRINCIPAL = "other_principal"
    """The connection is that of another one."""


def counted_problems(*, asked: bool) -> dict[TokenProblem, int]:
    """Counts of the problems that can occur at a port, whose peers are ``asked`` who they are or not."""
    return dict.fromkeys(TokenProblem if asked else (TokenProblem.NO_TLS,), 0)


class TokenRefusal(WaltzError):
    """A token proves nothing. The text says why, and has no part of the token but the id of its key."""

    def __init__(self, problem: TokenProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


NO_TLS_TEXT = "it came over a connection without TLS, where others may have read it: withdraw it"
"""The reason for :attr:`TokenProblem.NO_TLS`."""
