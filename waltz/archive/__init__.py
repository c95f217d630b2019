"""The archive: committed transactions of the log as objects of a store, for ever and for readers of the history.

1. ``object_format`` (pure): the bytes of an object; ``manifest`` (pure): which objects count;
   ``documents`` (pure): small documents with a checksum.
2. ``store``: the object store; ``chain``: the manifest in it; ``verification``: whether all of it is whole.
3. ``process``: the archiver. ``errors``: errors of all of them.
"""
