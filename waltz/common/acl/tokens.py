"""Bearer tokens of peers without certificates: JSON Web Tokens, verified with keys at hand. Pure but for the clock.

A key has an id and one algorithm, both said by the node's own files. A token names its key; what it says about its
algorithm must agree with the key, and decides nothing.
"""

import json
import warnings
from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import jwt

from waltz.common.access import ANONYMOUS
from waltz.common.acl.mapping import is_principal
from waltz.common.brief import shown
from waltz.common.errors import ConfigError
from waltz.common.net.token_problems import TokenProblem, TokenRefusal

MAX_TOKEN_CHARACTERS: Final = 8192
"""A longer token is refused unread."""
MAX_KEYS: Final = 100
MAX_ID_CHARACTERS: Final = 200
"""Longest id of a key or of a token."""
MIN_RSA_BITS: Final = 2048
LAST_S: Final = 253_402_300_799
"""The last time that has a date: the end of the year 9999."""

ALGORITHMS: Final = {
    **{f"HS{bits}": "oct" for bits in (256, 384, 512)},
    **{f"{kind}{bits}": "RSA" for kind in ("RS", "PS") for bits in (256, 384, 512)},
    **{f"ES{bits}": "EC" for bits in (256, 384, 512)},
    "EdDSA": "OKP",
}
"""The algorithms that a node can be configured for, with the type of their keys (``kty``)."""

_CURVES: Final = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}
_PRIVATE: Final = ("d", "p", "q", "dp", "dq", "qi")
"""Fields of private keys."""


class TokenKey(NamedTuple):
    """A key, and the only algorithm for which it counts."""

    algorithm: str
    key: jwt.PyJWK


class Verified(NamedTuple):
    """What a token proves."""

    principal: str
    expires_s: float
    """The end of its validity, with the leeway, in seconds since 1970."""


class Tokens(NamedTuple):
    """What a node knows about tokens."""

    keys: Mapping[str, TokenKey]
    """By their ids."""
    withdrawn: frozenset[str] | None
    """Ids of tokens that count no more; ``None``: none can be withdrawn, and tokens need no id."""
    audience: str
    """The key of the cluster."""
    leeway_s: float
    """How far clocks may differ."""

    def verify(self, token: str) -> Verified:
        """What a token proves at present. Raises :class:`TokenRefusal`."""
        if len(token) > MAX_TOKEN_CHARACTERS:
            raise TokenRefusal(
                TokenProblem.UNREADABLE, f"the token has {len(token)} characters; the limit is {MAX_TOKEN_CHARACTERS}"
            )
        try:
            claims = self._claims(token)
        except jwt.ExpiredSignatureError:
            raise TokenRefusal(TokenProblem.EXPIRED, "the token has expired; the client needs a new one") from None
        except jwt.ImmatureSignatureError:
            raise TokenRefusal(
                TokenProblem.NOT_YET_VALID,
                "the token is not valid yet; compare the clocks of its issuer and of this node",
            ) from None
        except (jwt.InvalidAudienceError, jwt.MissingRequiredClaimError) as error:
            if isinstance(error, jwt.MissingRequiredClaimError) and error.claim != "aud":
                raise TokenRefusal(TokenProblem.UNREADABLE, f"the token has no {error.claim!r}") from None
            raise TokenRefusal(
                TokenProblem.OTHER_CLUSTER, "the token is for another cluster: its 'aud' must be this cluster's key"
            ) from None
        except jwt.InvalidSignatureError:
            raise TokenRefusal(TokenProblem.WRONG_SIGNATURE, "the token's signature is wrong") from None
        except (jwt.PyJWTError, ValueError, OverflowError, RecursionError):  # their texts may quote the token
            raise TokenRefusal(
                TokenProblem.UNREADABLE, "the token cannot be read: it is damaged, or no JSON Web Token"
            ) from None
        token_id = claims.get("jti")
        if self.withdrawn is not None and token_id in self.withdrawn:
            raise TokenRefusal(TokenProblem.WITHDRAWN, "the token has been withdrawn; the client needs a new one")
        principal = claims["sub"]
        if principal == ANONYMOUS or not is_principal(principal):
            raise TokenRefusal(TokenProblem.UNREADABLE, "the token's 'sub' cannot be a principal")
        return Verified(principal, float(int(claims["exp"])) + self.leeway_s)

    def _claims(self, token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        key_id = header.get("kid")
        if not isinstance(key_id, str):
            raise TokenRefusal(TokenProblem.UNKNOWN_KEY, "the token does not name its key ('kid')")
        key = self.keys.get(key_id)
        if key is None:
            raise TokenRefusal(TokenProblem.UNKNOWN_KEY, f"the token's key {shown(key_id)} is not known here")
        if header.get("alg") != key.algorithm:
            raise TokenRefusal(
                TokenProblem.UNKNOWN_KEY, f"the token's algorithm is not {key.algorithm}, which is that of its key"
            )
        required = ["exp", "aud", "sub"] if self.withdrawn is None else ["exp", "aud", "sub", "jti"]
        return jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            audience=self.audience,
            leeway=self.leeway_s,
            options={"require": required},
        )


class Inspected(NamedTuple):
    """What a token says, whether that is true or not."""

    principal: str
    key_id: str | None
    token_id: str | None
    audience: tuple[str, ...]
    """The keys of the clusters that it is for."""
    expires_ms: int
    """Milliseconds since 1970."""


def inspected(token: str, keys: Mapping[str, TokenKey] | None) -> Inspected:
    """What a token says: verified with ``keys``, for whichever cluster, or only read.

    Raises :class:`TokenRefusal`.
    """
    try:
        header = jwt.get_unverified_header(token)
        claims = jwt.decode(token, options={"verify_signature": False})
        expires_s = min(max(int(claims["exp"]), 0), LAST_S)
    except (jwt.PyJWTError, KeyError, TypeError, ValueError, OverflowError, RecursionError):
        raise TokenRefusal(
            TokenProblem.UNREADABLE, "the token cannot be read: it is damaged, or no JSON Web Token that expires"
        ) from None
    said = claims.get("aud")
    audience = tuple(str(each) for each in (said if isinstance(said, list) else [said]) if each is not None)
    if keys is not None:
        Tokens(keys, None, audience[0] if audience else "", 0.0).verify(token)
    key_id, token_id = header.get("kid"), claims.get("jti")
    return Inspected(
        str(claims.get("sub")), key_id, None if token_id is None else str(token_id), audience, 1000 * expires_s
    )


def read_algorithms(text: str) -> frozenset[str]:
    """The algorithms of ``acl.tokens.algorithms``. Raises ``ConfigError``."""
    found = frozenset(part.strip() for part in text.split(","))
    unknown = sorted(found - ALGORITHMS.keys())
    if unknown:
        raise ConfigError(
            f"acl.tokens.algorithms: {unknown[0]!r} is no algorithm for tokens; there are {', '.join(ALGORITHMS)}"
        )
    return found


def read_keys(content: str | bytes, algorithms: Collection[str], source: str) -> dict[str, TokenKey]:
    """The keys of a JSON Web Key Set, by their ids.

    Each must have an id (``kid``) and an algorithm (``alg``) that is one of ``algorithms``.

    Raises:
        ConfigError: The file is no such set, or a key is too weak, private, or of another kind than its algorithm.
    """
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise ConfigError(f"{source} is no JSON") from None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_KEYS:
        raise ConfigError(f'{source} is no JSON Web Key Set: expected {{"keys": [...]}} with 1 to {MAX_KEYS} keys')
    keys: dict[str, TokenKey] = {}
    for number, each in enumerate(listed, 1):
        key_id = each.get("kid") if isinstance(each, dict) else None
        if not isinstance(key_id, str) or not 0 < len(key_id) <= MAX_ID_CHARACTERS:
            raise ConfigError(f"{source}: key {number} has no id ('kid' of 1 to {MAX_ID_CHARACTERS} characters)")
        if key_id in keys:
            raise ConfigError(f"{source}: two keys have the id {key_id!r}")
        keys[key_id] = _key(each, algorithms, f"{source}: key {key_id!r}")
    return keys


def _key(described: Mapping[str, object], algorithms: Collection[str], where: str) -> TokenKey:
    algorithm = described.get("alg")
    if not isinstance(algorithm, str) or algorithm not in algorithms:
        raise ConfigError(
            f"{where}: its algorithm ('alg') is none of acl.tokens.algorithms ({', '.join(sorted(algorithms))})"
        )
    curve = _CURVES.get(algorithm)
    if described.get("kty") != ALGORITHMS[algorithm] or (curve is not None and described.get("crv") != curve):
        raise ConfigError(f"{where} is not of the kind that {algorithm} needs")
    if any(field in described for field in _PRIVATE):
        raise ConfigError(f"{where} is private; nodes need its public part only, and must not have the other")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about weak keys, which are refused below
            made = jwt.PyJWK(dict(described), algorithm)
    except Exception:  # PyJWT lets errors of many kinds through, such as KeyError; their texts may quote the key
        raise ConfigError(f"{where} cannot be read") from None
    bits = len(made.key) * 8 if isinstance(made.key, bytes) else getattr(made.key, "key_size", None)
    least = {"oct": int(algorithm[2:]) if algorithm.startswith("HS") else 0, "RSA": MIN_RSA_BITS}
    minimum = least.get(ALGORITHMS[algorithm], 0)
    if bits is not None and bits < minimum:
        raise ConfigError(f"{where} is too weak: {bits} bits; {algorithm} needs {minimum}")
    return TokenKey(algorithm, made)


def read_withdrawn(content: str, source: str) -> frozenset[str]:
    """The ids of withdrawn tokens, one a line; empty lines and those that begin with ``#`` do not count.

    Raises ``ConfigError`` for a line that is too long to be an id.
    """
    found = set()
    for number, line in enumerate(content.splitlines(), 1):
        text = line.strip()
        if len(text) > MAX_ID_CHARACTERS:
            raise ConfigError(f"{source}: line {number} is no token id ('jti'): it has {len(text)} characters")
        if text and not text.startswith("#"):
            found.add(text)
    return frozenset(found)
