"""Tokens: what is verified, and what hostile or careless issuers and clients try in vain."""

import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from tests.unit.common.acl.tokens import AUDIENCE, LIFE_S, PRIVATE, described, key_set, part, public_pem, token
from waltz.common.acl.tokens import (
    LAST_S,
    MAX_TOKEN_CHARACTERS,
    Tokens,
    inspected,
    read_algorithms,
    read_keys,
    read_withdrawn,
)
from waltz.common.errors import ConfigError
from waltz.common.net.token_problems import TokenProblem, TokenRefusal

ALGORITHMS = read_algorithms("ES256, RS256,EdDSA,HS256")
TOKENS = Tokens(read_keys(key_set(), ALGORITHMS, "keys.json"), frozenset({"gone"}), AUDIENCE, 30.0)
NOW_S = int(time.time())


@pytest.mark.parametrize("algorithm", sorted(PRIVATE))
def test_good_tokens_are_verified(algorithm: str) -> None:
    found = TOKENS.verify(token(algorithm))
    assert found.principal == "svc-t"
    assert NOW_S + LIFE_S + 30 <= found.expires_s <= time.time() + LIFE_S + 30


def test_clocks_may_differ_by_the_leeway() -> None:
    assert TOKENS.verify(token(exp=int(time.time()) - 15)).principal == "svc-t"
    assert TOKENS.verify(token(nbf=int(time.time()) + 15)).principal == "svc-t"


def test_two_keys_count_at_once_and_tokens_for_many_clusters() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    keys = key_set(described("ES256", "old"), described("ES256", "new", other))
    tokens = TOKENS._replace(keys=read_keys(keys, ALGORITHMS, "keys.json"))
    assert tokens.verify(token(key_id="old")).principal == "svc-t"
    assert tokens.verify(token(key_id="new", private=other, aud=["other", AUDIENCE])).principal == "svc-t"
    with pytest.raises(TokenRefusal, match="signature is wrong"):
        tokens.verify(token(key_id="new"))


def hmac_by_public_key() -> str:
    """HS256 with the text of a public key as the secret: what confuses verifiers that believe the token."""
    signed = f"{part({'alg': 'HS256', 'kid': 'RS256'})}.{part({'sub': 'ops', 'aud': AUDIENCE, 'exp': NOW_S + LIFE_S})}"
    digest = hmac.new(public_pem("RS256"), signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{part(digest)}"


def unsigned(algorithm: str) -> str:
    claims = {"sub": "ops", "aud": AUDIENCE, "exp": NOW_S + LIFE_S, "jti": "t-1"}
    return f"{part({'alg': algorithm, 'kid': 'ES256'})}.{part(claims)}."


BAD = [
    (token(exp=NOW_S - 100), "has expired"),
    (token(nbf=NOW_S + LIFE_S), "not valid yet"),
    (token(iat=NOW_S + LIFE_S), "not valid yet"),
    (token(aud="11111111-1111-1111-1111-111111111111"), "for another cluster"),
    (token(aud=None), "for another cluster"),
    (token(aud=["a", "b"]), "for another cluster"),
    (token(exp=None), "no 'exp'"),
    (token(sub=None), "no 'sub'"),
    (token(jti=None), "no 'jti'"),
    (token(jti="gone"), "has been withdrawn"),
    (token(key_id="nobody's"), 'key "nobody\'s" is not known here'),
    (token(key_id="x" * 500), "x{50,60}[.]+ is not known here"),
    (token(private=ec.generate_private_key(ec.SECP256R1())), "signature is wrong"),
    (unsigned("none"), "algorithm is not ES256"),
    (unsigned("None"), "algorithm is not ES256"),
    (unsigned("ES256"), "signature is wrong"),
    (hmac_by_public_key(), "algorithm is not RS256"),
    (token("HS256", key_id="RS256", private=b"x" * 64), "algorithm is not RS256"),
    (token("RS256", key_id="HS256"), "algorithm is not HS256"),
    (token(sub="anonymous"), "cannot be a principal"),
    (token(sub="*"), "cannot be a principal"),
    (token(sub="group:pay"), "cannot be a principal"),
    (token(sub=""), "cannot be a principal"),
    (token(sub="a\nb"), "cannot be a principal"),
    (token(sub="a" * 2000), "cannot be a principal"),
    (token(sub="a" * 9000), "the limit is 8192"),
    (token()[:-1], "signature is wrong|cannot be read"),
    (token()[: len(token()) // 2], "cannot be read|signature is wrong"),
    ("", "cannot be read"),
    ("..", "cannot be read"),
    ("é.é.é", "cannot be read"),
    (part("[" * 5000) + ".e30.e30", "cannot be read"),
    (part([]) + ".e30.e30", "cannot be read"),
    (part({"alg": "ES256"}) + ".e30.e30", "does not name its key"),
    (part({"alg": "ES256", "kid": 7}) + ".e30.e30", "cannot be read|does not name its key"),
    ("a" * (MAX_TOKEN_CHARACTERS + 1), "the limit is 8192"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=map(str, range(len(BAD))))  # no token is the same twice
def test_bad_tokens_are_refused_without_being_quoted(bad: str, reason: str) -> None:
    with pytest.raises(TokenRefusal, match=reason) as refused:
        TOKENS.verify(bad)
    text = str(refused.value)
    assert len(text) < 200
    assert not any(piece in text for piece in bad.split(".") if len(piece) > 10)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (token(exp=NOW_S - 100), TokenProblem.EXPIRED),
        (token(nbf=NOW_S + LIFE_S), TokenProblem.NOT_YET_VALID),
        (token(aud="another"), TokenProblem.OTHER_CLUSTER),
        (token(jti="gone"), TokenProblem.WITHDRAWN),
        (token(key_id="nobody's"), TokenProblem.UNKNOWN_KEY),
        (token(private=ec.generate_private_key(ec.SECP256R1())), TokenProblem.WRONG_SIGNATURE),
        (token(sub=None), TokenProblem.UNREADABLE),
    ],
    ids=["expired", "early", "cluster", "withdrawn", "key", "signature", "unreadable"],
)
def test_what_metrics_say_about_them(bad: str, problem: TokenProblem) -> None:
    with pytest.raises(TokenRefusal) as refused:
        TOKENS.verify(bad)
    assert refused.value.problem is problem


def signed(payload: str) -> str:
    """A token whose issuer signs anything."""
    body = f"{part({'alg': 'HS256', 'kid': 'HS256'})}.{part(payload)}"
    digest = hmac.new(PRIVATE["HS256"], body.encode(), hashlib.sha256).digest()
    return f"{body}.{part(digest)}"


NONSENSE = [
    "[]",
    "7",
    "{",
    "[" * 4000,
    f'{{"sub": 7, "aud": "{AUDIENCE}", "jti": "a", "exp": {NOW_S + LIFE_S}}}',
    f'{{"sub": "a", "aud": "{AUDIENCE}", "jti": 7, "exp": {NOW_S + LIFE_S}}}',
    f'{{"sub": "a", "aud": "{AUDIENCE}", "jti": [], "exp": {NOW_S + LIFE_S}}}',
    *(
        f'{{"sub": "a", "aud": "{AUDIENCE}", "jti": "a", "exp": {exp}}}'
        for exp in ("Infinity", "NaN", "-Infinity", "1e999", '"x"', "[]", "{}", "9" * 5000)
    ),
]


@pytest.mark.parametrize("payload", NONSENSE, ids=map(str, range(len(NONSENSE))))
def test_nonsense_with_a_good_signature_is_refused(payload: str) -> None:
    with pytest.raises(TokenRefusal):
        TOKENS.verify(signed(payload))


def test_without_a_list_of_withdrawn_tokens_they_need_no_id() -> None:
    assert TOKENS._replace(withdrawn=None).verify(token(jti=None)).principal == "svc-t"


HS256 = described("HS256")


UNUSABLE = [
    ("", "is no JSON"),
    ("[" * 100_000, "is no JSON"),
    ("[]", "no JSON Web Key Set"),
    ('{"keys": []}', "no JSON Web Key Set"),
    (key_set(*[described("HS256", f"k{number}") for number in range(101)]), "1 to 100 keys"),
    ('{"keys": [7]}', "key 1 has no id"),
    (key_set({**HS256, "kid": ""}), "key 1 has no id"),
    (key_set(HS256, HS256), "two keys have the id 'HS256'"),
    (key_set({**HS256, "alg": None}), "none of acl.tokens.algorithms .ES256, EdDSA, HS256, RS256."),
    (key_set({**HS256, "alg": "HS512"}), "none of acl.tokens.algorithms"),
    (key_set({**HS256, "alg": "none"}), "none of acl.tokens.algorithms"),
    (key_set({**HS256, "alg": "RS256"}), "not of the kind that RS256 needs"),
    (key_set({**described("RS256"), "alg": "HS256"}), "not of the kind that HS256 needs"),
    (key_set({**described("ES256"), "crv": "P-384"}), "not of the kind that ES256 needs"),
    (key_set({**described("ES256"), "x": "AAAA"}), "cannot be read"),
    (key_set({**described("ES256"), "d": "AAAA"}), "is private"),
    (key_set({"kty": "oct", "kid": "a", "alg": "HS256"}), "cannot be read"),
    (key_set({"kty": "RSA", "kid": "a", "alg": "RS256", "n": 7, "e": []}), "cannot be read"),
    (key_set(described("HS256", private=b"short")), "too weak: 40 bits; HS256 needs 256"),
    (key_set(described("RS256", private=rsa.generate_private_key(65537, 1024))), "1024 bits; RS256 needs 2048"),
]


@pytest.mark.parametrize(("content", "reason"), UNUSABLE, ids=map(str, range(len(UNUSABLE))))
def test_unusable_keys_are_refused(content: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        read_keys(content, ALGORITHMS, "keys.json")
    assert str(refused.value).startswith("keys.json")


@pytest.mark.parametrize("text", ["none", "HS256,none", "", "ES256,", "hs256"])
def test_only_known_algorithms_can_be_configured(text: str) -> None:
    with pytest.raises(ConfigError, match=r"acl.tokens.algorithms: .* is no algorithm"):
        read_algorithms(text)


def test_withdrawn_tokens_are_listed_by_line() -> None:
    assert read_withdrawn("# leaked on Monday\n t-1 \n\nt-2\n", "withdrawn.txt") == {"t-1", "t-2"}
    with pytest.raises(ConfigError, match=r"withdrawn.txt: line 2 is no token id"):
        read_withdrawn("t-1\n" + "a" * 300, "withdrawn.txt")


def test_keys_are_not_shown() -> None:
    seen: list[Any] = [TOKENS, *TOKENS.keys.values()]
    secret = json.loads(key_set())["keys"][-1]["k"]
    assert secret not in repr(seen)
    assert PRIVATE["HS256"].decode() not in repr(seen)


def test_a_token_is_inspected_with_and_without_keys() -> None:
    text = token(exp=NOW_S + LIFE_S, aud=["other", AUDIENCE])
    found = inspected(text, None)
    assert found == ("svc-t", "ES256", "t-1", ("other", AUDIENCE), 1000 * (NOW_S + LIFE_S))
    assert inspected(text, TOKENS.keys) == found
    assert inspected(token(exp=10**30, aud=None, jti=None), None)[2:] == (None, (), 1000 * LAST_S)
    foreign = token(private=ec.generate_private_key(ec.SECP256R1()))
    assert inspected(foreign, None).principal == "svc-t"
    with pytest.raises(TokenRefusal, match="signature is wrong"):
        inspected(foreign, TOKENS.keys)
    for bad in ("", "a.b.c", token(exp=None), signed('{"sub": "a", "exp": "x"}')):
        with pytest.raises(TokenRefusal, match="cannot be read"):
            inspected(bad, None)
