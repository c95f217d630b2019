"""The archive: committed transactions of the log, copied to an object store and kept there forever.

1. ``object_format`` (pure): the bytes of an object; ``manifest`` (pure): which objects count;
   ``documents`` (pure): small documents with a checksum.
2. ``store``: the object store; ``chain``: the manifest in the store; ``verification``: the check of an archive.
3. ``process``: the archiver. ``errors``: the errors of the package.
"""
