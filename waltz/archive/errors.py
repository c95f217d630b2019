"""Errors of the archive. A wrong address of an archive is a ``ConfigError``."""

from waltz.common.errors import WaltzError


class ArchiveError(WaltzError):
    """A request to the archive failed; the text gives the reason and the remedy."""


class ArchiveDamagedError(ArchiveError):
    """An object or an entry of the manifest is damaged; the text gives its name and the damage."""


class NewerFormError(ArchiveDamagedError):
    """It was written by a newer program, in a form that this one does not know."""


class ArchiveConflictError(ArchiveError):
    """The manifest already has another range here: another archiver was faster, or the archive is of another log.

    The object that was written does not count.
    """


class StoreUnavailableError(ArchiveError):
    """The object store did not answer, or refused a request; the text has its reason. The request may be repeated."""


class NotFoundInStoreError(ArchiveError):
    """The store has no object of this name."""
