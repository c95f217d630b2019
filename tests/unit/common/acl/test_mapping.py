"""Principals of the subjects of certificates."""

import sys

import pytest

from waltz.common.access import ANONYMOUS, Source
from waltz.common.acl.mapping import DEFAULT, MAX_MAPPING_CHARACTERS, principal_mapping, principal_sources
from waltz.common.errors import ConfigError


@pytest.mark.parametrize(
    ("rules", "subject", "principal"),
    [
        ("DEFAULT", "CN=svc-a,O=Bank", "CN=svc-a,O=Bank"),
        (r"RULE:^CN=([^,]+).*$/$1/", "CN=svc-a,O=Bank", "svc-a"),
        (r"RULE:^CN=([^,]+).*$/$1/", "CN=svc-a", "svc-a"),
        # The examples of Kafka's documentation.
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=Unknown", "serviceuser"),
        ("RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L", "CN=A,OU=B,O=U,L=U,ST=U,C=U", "a@b"),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L", "C=CH,CN=AdminUser", "adminuser"),
        ("RULE:CN=(.*)/$1/U", "CN=svc-a", "SVC-A"),
        ("RULE:CN=a/b/, RULE:CN=c/d/ ,DEFAULT", "CN=c", "d"),
        ("RULE:CN=a/b/, RULE:CN=c/d/ ,DEFAULT", "CN=e", "CN=e"),
        ("RULE:CN=a,O=b/both/,DEFAULT", "CN=a,O=b", "both"),
        (r"RULE:URI=a\/(.)/$1\/\$1/", "URI=a/b", "b/$1"),
        ("RULE:(CN=a)|CN=(.*)/[$1|$2]/", "CN=b", "[|b]"),
        ("RULE:CN=(.*)/$1/", "O=Bank", ANONYMOUS),
        ("RULE:CN=(.*)/$1/", "xCN=svc-a", ANONYMOUS),
        ("RULE:CN=(.*)/$1/", "CN=*", ANONYMOUS),
        ("RULE:CN=(.*)/$1/", "CN=group:ops", ANONYMOUS),
        ("RULE:CN=(.*)/$1/", "CN=", ANONYMOUS),
        ("RULE:CN=(.*)/$1/", "CN=a\u202eb", ANONYMOUS),
        ("RULE:CN=(.*)/$1/", "CN=" + "a" * 513, ANONYMOUS),
        ("DEFAULT", "CN=" + "a" * 1022, ANONYMOUS),
        ("RULE:(.*)/admin/", ANONYMOUS, ANONYMOUS),
    ],
)
def test_the_principal_of_a_subject(rules: str, subject: str, principal: str) -> None:
    assert principal_mapping(rules)(subject) == principal


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ("", "'' is neither DEFAULT nor RULE:"),
        ("default", "'default' is neither"),
        ("DEFAULT;DEFAULT", "is neither"),
        ("RULE:CN=(.*)/$1", "is neither"),
        ("RULE:CN=(.*)/$1/X", "is neither"),
        ("RULE:CN=(.*/$1/", r"'CN=\(\.\*' is no pattern"),
        (r"RULE:(.)\\1/$1/,RULE:(?=a)/b/", r"'\(\?=a\)' is no pattern"),
        ("RULE:CN=(.*)/$2/", "has no group 2"),
        ("RULE:" + "a" * MAX_MAPPING_CHARACTERS + "/b/", "the limit is 4096"),
    ],
)
def test_what_is_no_mapping_is_refused(rules: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        principal_mapping(rules)


def test_sources_of_names() -> None:
    assert principal_sources("subject") == (Source.SUBJECT,)
    assert principal_sources(" uri,dns , subject") == (Source.URI, Source.DNS, Source.SUBJECT)
    for text in ("", "email", "uri,", "uri,uri", "URI", "subject uri"):
        with pytest.raises(
            ConfigError, match=r"acl.principalFrom: .* is no list of some of subject, uri, dns, each once"
        ):
            principal_sources(text)


def test_names_from_elsewhere_are_mapped_and_bounded_like_subjects() -> None:
    mapping = principal_mapping(r"RULE:^spiffe:\/\/prod.example\/ns\/([^\/]+)\/sa\/([^\/]+)$/$1-$2/")
    assert mapping("spiffe://prod.example/ns/pay/sa/svc-a") == "pay-svc-a"
    assert mapping("spiffe://other.example/ns/pay/sa/svc-a") == ANONYMOUS
    assert principal_mapping("DEFAULT")("spiffe://prod.example/" + "a" * 1024) == ANONYMOUS
    assert principal_mapping("DEFAULT")("group:pay") == ANONYMOUS, "which is a URI, too"


@pytest.mark.timeout(60)
@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|aa)+b", "(.*)(.*)(.*)(.*)(.*)b", "(a{1,30}){1,30}b"])
def test_no_subject_holds_a_node(pattern: str) -> None:
    """Python's own patterns would need hours."""
    assert principal_mapping(f"RULE:{pattern}/c/")("a" * 1024) == ANONYMOUS


def test_without_the_library_only_rules_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    assert principal_mapping(DEFAULT)("CN=a") == "CN=a"
    with pytest.raises(ConfigError, match=r"waltz-log\[acl\]"):
        principal_mapping("RULE:a/b/")
