"""The permissions of peers, and the principal that a certificate proves."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.access import ALLOW_ALL, ANONYMOUS, EVERYTHING, Right, Source, not_permitted, principal_of

KEYS = {
    "commonName": NameOID.COMMON_NAME,
    "organizationalUnitName": NameOID.ORGANIZATIONAL_UNIT_NAME,
    "organizationName": NameOID.ORGANIZATION_NAME,
    "localityName": NameOID.LOCALITY_NAME,
    "stateOrProvinceName": NameOID.STATE_OR_PROVINCE_NAME,
    "streetAddress": NameOID.STREET_ADDRESS,
    "domainComponent": NameOID.DOMAIN_COMPONENT,
    "userId": NameOID.USER_ID,
}

VALUES = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_characters="\x7f"), min_size=1, max_size=8
)
PAIRS = st.tuples(st.sampled_from(sorted(KEYS)), VALUES)
SUBJECTS = st.lists(st.lists(PAIRS, min_size=1, max_size=2, unique_by=lambda pair: pair[0]), min_size=1, max_size=4)


@given(SUBJECTS)
def test_a_subject_reads_as_other_libraries_write_it(subject: list[list[tuple[str, str]]]) -> None:
    certificate = {"subject": tuple(tuple(names) for names in subject)}
    parts = [[x509.NameAttribute(KEYS[key], value) for key, value in each] for each in subject]
    name = x509.Name(map(x509.RelativeDistinguishedName, parts))
    ours = sorted(principal_of(certificate))  # the order of names within one part is free
    assert ours == sorted(name.rfc4514_string())


def test_the_last_part_comes_first() -> None:
    subject = ((("countryName", "CH"),), (("organizationName", "Bank, Ltd."),), (("commonName", "svc-a"),))
    assert principal_of({"subject": subject}) == "CN=svc-a,O=Bank\\, Ltd.,C=CH"


@pytest.mark.parametrize("certificate", [None, {}, {"subject": ()}])
def test_without_a_verified_certificate_a_peer_is_anonymous(certificate: dict[str, object] | None) -> None:
    assert principal_of(certificate) == ANONYMOUS


SPIFFE = "spiffe://prod.example/ns/pay/sa/svc-a"
SUBJECT = ((("commonName", "svc-a"),),)


@pytest.mark.parametrize(
    ("names", "sources", "principal"),
    [
        ([("DNS", "A.example"), ("URI", SPIFFE), ("DNS", "b.example")], "uri", SPIFFE),
        ([("DNS", "A.example"), ("URI", SPIFFE), ("DNS", "b.example")], "dns", "a.example"),
        ([("DNS", "A.example"), ("URI", SPIFFE)], "dns uri subject", "a.example"),
        ([("URI", SPIFFE)], "dns uri subject", SPIFFE),
        ([("URI", SPIFFE)], "subject uri", "CN=svc-a"),
        ([("IP Address", "10.0.0.1"), ("email", "a@b")], "uri dns subject", "CN=svc-a"),
        ([], "uri dns", ANONYMOUS),
        ([("URI", SPIFFE), ("URI", SPIFFE + "b")], "uri", ANONYMOUS),
        ([("URI", "CN=ops")], "uri", ANONYMOUS),
        ([("URI", "group:a b")], "uri", ANONYMOUS),
        ([("URI", "spiffe://a\n")], "uri", ANONYMOUS),
        ([("DNS", "*.example")], "dns", ANONYMOUS),
        ([("DNS", "*")], "dns", ANONYMOUS),
        ([("DNS", "CN=ops")], "dns", ANONYMOUS),
        ([("DNS", "a b")], "dns", ANONYMOUS),
        ([("DNS", "")], "dns", ANONYMOUS),
    ],
)
def test_alternative_names_count_where_they_are_asked_for(
    names: list[tuple[str, str]], sources: str, principal: str
) -> None:
    certificate = {"subject": SUBJECT, "subjectAltName": tuple(names)}
    assert principal_of(certificate, [Source(each) for each in sources.split()]) == principal
    assert principal_of(certificate) == "CN=svc-a"


def test_a_certificate_without_subject_has_its_other_names() -> None:
    certificate = {"subject": (), "subjectAltName": (("URI", SPIFFE),)}
    assert principal_of(certificate, [Source.SUBJECT, Source.URI]) == SPIFFE
    assert principal_of({}, list(Source)) == ANONYMOUS


def test_every_principal_may_do_everything_by_default() -> None:
    assert ALLOW_ALL.rights_of(ANONYMOUS) is EVERYTHING
    assert not any(EVERYTHING.refusal(right, partition_id) for right in Right for partition_id in (None, 0, 7))


def test_refusals_say_who_may_not_do_what() -> None:
    assert not_permitted("CN=a", Right.APPEND, 7) == "principal 'CN=a' may not append to partition 7"
    assert not_permitted(ANONYMOUS, Right.ADMIN, None) == "principal 'anonymous' may not administer this node"
