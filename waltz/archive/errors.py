"""Errors of the archive; wrong addresses raise ``ConfigError``."""

from waltz.common.errors import WaltzError


class ArchiveError(WaltzError):
    """The archive cannot do what was asked; the text says why, and what to do."""


class ArchiveDamagedError(ArchiveError):
    """An object or an entry of the manifest is not what was written; the text names it, and what is wrong with it."""


class NewerFormError(ArchiveDamagedError):
    """It was written by a newer program, in a form that this one does not know."""


class ArchiveConflictError(ArchiveError):
    """Another archiver was faster, or the archive belongs to another log: what was written does not count."""


class StoreUnavailableError(ArchiveError):
    """The object store did not answer, or refused; the text has its reason. To be tried again."""


class NotFoundInStoreError(ArchiveError):
    """There is no object of this name in the store."""
