"""What a token says that proves nothing: read for the audit log, whatever it is."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.acl.tokens import part, token
from waltz.common.acl.claims import claimed_principal
from waltz.common.acl.mapping import is_principal


@pytest.mark.parametrize(
    ("make", "claimed"),
    [
        (lambda: f"a.{part({'sub': 'svc-a'})}.c", "svc-a"),
        (lambda: f"a.{part({'sub': 'group:pay'})}.c", None),
        (lambda: f"a.{part({'sub': 7})}.c", None),
        (lambda: f"a.{part([])}.c", None),
        (lambda: f"a.{part('[' * 4000)}.c", None),
        (lambda: f"a.{part({'sub': 'svc-a', 'more': 'x' * 9000})}.c", None),
        (lambda: f"a.{part({'sub': 'svc-a'})}", None),
        (lambda: "é.é.é", None),
        (lambda: "", None),
    ],
)
def test_what_a_refused_token_claims(make: Callable[[], str], claimed: str | None) -> None:
    assert claimed_principal(make()) == claimed


def test_a_good_token_claims_what_it_proves() -> None:
    assert claimed_principal(token(sub="svc-t")) == "svc-t"


@given(st.one_of(st.text(), st.builds("a.{}.c".format, st.text()), st.builds("a.{}.c".format, st.binary().map(part))))
def test_whatever_is_presented_claims_nobody_or_a_principal(text: str) -> None:
    found = claimed_principal(text)
    assert found is None or is_principal(found)
