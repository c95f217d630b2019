"""What a token says that proves nothing: for the audit log. Pure, and without the library that verifies tokens."""

import base64
import json
from typing import Final

from waltz.common.acl.mapping import is_principal

MAX_READ_CHARACTERS: Final = 8192
"""A longer token is not read."""


def claimed_principal(token: str) -> str | None:
    """The principal that a token claims to be of; ``None`` if it does not say, or nobody can be called so."""
    parts = token.split(".") if len(token) <= MAX_READ_CHARACTERS else []
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, RecursionError):
        return None
    found = claims.get("sub") if isinstance(claims, dict) else None
    return found if isinstance(found, str) and is_principal(found) else None
