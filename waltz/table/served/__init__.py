"""Tables that view nodes serve: what both sides say, and the face of applications without a view of their own.

1. ``texts`` (pure): bytes, rows and versions in JSON; ``questions`` (pure): requests, and their checks; ``problems``
   (pure): refusals and the errors that they stand for; ``registration`` (pure): what view nodes say of themselves.
2. ``answers``: what is answered, by a table with a view in the process that answers.
3. ``nodes``: the view nodes of a partition; ``calls``: requests to one of them, or else to the next; ``hedging``
   (pure): when a late read is sent to a second one; ``stand_in``:
   answers without view nodes, for clusters in memory.
4. ``table``: the face; ``demands`` (pure): what a read demands; ``replies`` (pure): what was answered;
   ``transacting``: transactions. For threads: ``blocking_table``, made of ``table``, and ``blocking``.
"""
