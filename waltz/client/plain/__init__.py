"""The plain face: append and wait for the outcome, read feeds in a loop.

``client`` is what applications call, ``append`` the submissions that it makes, ``reader`` its feeds (from servers that
have no bulk reads through an engine that applies), ``transact`` the steps of a decision that rests on feeds.
"""
