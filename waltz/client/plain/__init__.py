"""The plain face: append and wait for the outcome, read feeds in a loop.

``client`` is what applications call, ``append`` the submissions that it makes, ``feed`` what its loops read, and
``reader`` where that comes from (for servers that have no bulk reads an engine that applies), ``transact`` the steps of
a decision that rests on feeds.
"""
