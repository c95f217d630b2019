"""Tokens and keys for tests."""

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

AUDIENCE: Final = "7f2b1c90-5a3e-4c55-9d0f-1f0a4cbb0c11"
LIFE_S: Final = 1_000_000
"""Tokens are made when tests are collected, and used much later."""

PRIVATE: Final[dict[str, Any]] = {
    "ES256": ec.generate_private_key(ec.SECP256R1()),
    "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "EdDSA": ed25519.Ed25519PrivateKey.generate(),
    "HS256": b"0123456789abcdef0123456789abcdef",
}


def described(algorithm: str, key_id: str | None = None, private: Any = None) -> dict[str, Any]:
    """A key as a JSON Web Key; its id is its algorithm unless given."""
    key = PRIVATE[algorithm] if private is None else private
    public = key if isinstance(key, bytes) else key.public_key()
    made = jwt.get_algorithm_by_name(algorithm).to_jwk(public)
    fields: dict[str, Any] = json.loads(made)
    fields.pop("key_ops", None)
    return {**fields, "kid": key_id or algorithm, "alg": algorithm}


def key_set(*keys: Mapping[str, Any]) -> str:
    return json.dumps({"keys": keys or [described(algorithm) for algorithm in PRIVATE]})


def token(algorithm: str = "ES256", *, key_id: str | None = None, private: Any = None, **claims: Any) -> str:
    """A good token, but for the claims that are given; those that are ``None`` are left out."""
    now_s = int(time.time())
    payload = {"sub": "svc-t", "aud": AUDIENCE, "exp": now_s + LIFE_S, "jti": "t-1", **claims}
    return jwt.encode(
        {name: value for name, value in payload.items() if value is not None},
        PRIVATE[algorithm] if private is None else private,
        algorithm,
        headers={"kid": key_id or algorithm},
    )


def part(value: object) -> str:
    """A part of a token that no library would make."""
    text = value if isinstance(value, str | bytes) else json.dumps(value)
    return base64.urlsafe_b64encode(text.encode() if isinstance(text, str) else text).rstrip(b"=").decode()


def public_pem(algorithm: str) -> bytes:
    found: bytes = (
        PRIVATE[algorithm]
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    return found


def write_keys(path: Path, *keys: Mapping[str, Any]) -> str:
    path.write_text(key_set(*keys))
    return str(path)
