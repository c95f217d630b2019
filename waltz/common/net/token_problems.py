"""The reasons why tokens are refused, as labels of metrics. The errors have texts for people."""

from enum import StrEnum

from waltz.common.errors import WaltzError


class TokenProblem(StrEnum):
    """The reason why a token is refused."""

    NO_TLS = "no_tls"
    """The connection is not encrypted: others may have read the token."""
    NOT_TAKEN = "not_taken"
    """The node has no keys for tokens."""
    UNREADABLE = "unreadable"
    """The token is damaged, too long, or lacks a required part."""
    UNKNOWN_KEY = "unknown_key"
    """The token's key is unknown, or is for another algorithm."""
    WRONG_SIGNATURE = "wrong_signature"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    OTHER_CLUSTER = "other_cluster"
    WITHDRAWN = "withdrawn"
    OTHER_PRINCIPAL = "other_principal"
    """The connection belongs to another principal."""


def counted_problems(*, asked: bool) -> dict[TokenProblem, int]:
    """A count of 0 for each problem that can occur at a port; ``asked``: the port identifies its peers."""
    return dict.fromkeys(TokenProblem if asked else (TokenProblem.NO_TLS,), 0)


class TokenRefusal(WaltzError):
    """A token is refused. The text gives the reason; of the token it contains at most the id of the key."""

    def __init__(self, problem: TokenProblem, text: str) -> None:
        super().__init__(text)
        self.problem = problem


NO_TLS_TEXT = "it was sent over a connection without TLS, where others may have read it: withdraw the token"
"""The reason for :attr:`TokenProblem.NO_TLS`."""
