"""The specifications under ``docs/models``, checked by TLC, with a counterexample for each mistake.

Modules, in the order of reading: ``checker``, ``__main__``.
"""
