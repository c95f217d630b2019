"""Benchmarks of whole clusters of real processes, beside a lean pipeline and beside other checkouts of Waltz.

``scenarios`` says what is measured, ``contestant`` measures it in a process for each contestant, ``runner`` lets them
take turns, and ``report``, ``tables``, ``comparison``, ``curves`` and ``plots`` make something to read of it.
"""
