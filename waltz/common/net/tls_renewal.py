"""TLS contexts that follow their files: new connections use a changed key store, trust store or revocation list.

A context cannot drop a trusted certificate. So a change makes another context. The whole process keeps the first one,
which refers to its successor.
"""

import ssl
from collections.abc import Callable, Sequence
from typing import TypeAlias

from waltz.common.net.followed_files import FollowedFiles
from waltz.common.net.revocation import RevocationLists
from waltz.common.net.token_sender import TokenSource


class FollowingContext(ssl.SSLContext):
    """A context that may follow files."""

    files: "StoreFiles | None" = None
    token: TokenSource | None = None
    """The token in the first message of connections with this context."""
    revocations: RevocationLists | None = None
    """The revocation lists that peers are checked against."""


StoreFiles: TypeAlias = FollowedFiles[FollowingContext]
"""The files of a configuration, and the context of their last usable version."""


def following(make: Callable[[], FollowingContext], paths: Sequence[str]) -> FollowingContext:
    """A context made by ``make`` from the files at ``paths``; gets a successor after each change."""
    files = FollowedFiles(make, paths, what="TLS", held="the former certificates stay in use")
    context = files.present
    context.files = files if paths else None
    return context


async def follow(context: ssl.SSLContext, on_change: Callable[[], None] | None = None) -> None:
    """Check the context's files regularly, until cancelled; call ``on_change`` after each successor."""
    files = files_of(context)
    if files is not None:
        await files.follow(on_change)


def files_of(context: ssl.SSLContext) -> StoreFiles | None:
    """The files that the context follows."""
    return context.files if isinstance(context, FollowingContext) else None


def present(context: ssl.SSLContext) -> ssl.SSLContext:
    """The context for a new connection."""
    files = files_of(context)
    return context if files is None else files.present


def revocations_of(context: ssl.SSLContext) -> RevocationLists | None:
    """The revocation lists for new connections; ``None`` without any."""
    newest = present(context)
    return newest.revocations if isinstance(newest, FollowingContext) else None


def token_of(context: ssl.SSLContext | None) -> TokenSource | None:
    """The token of connections with this context; ``None`` if there is none, or no TLS."""
    return context.token if isinstance(context, FollowingContext) else None
