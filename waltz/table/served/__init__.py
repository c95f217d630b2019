"""Tables that view nodes serve: what both sides say, and the face of applications without a view of their own.

1. ``texts`` (pure): bytes, rows and versions in JSON; ``questions`` (pure): requests, and their checks; ``problems``
   (pure): refusals and the errors that they stand for; ``registration`` (pure): what view nodes say of themselves.
2. ``nodes``: the view nodes of a partition; ``calls``: requests to one of them, or else to the next.
3. ``table``: the face.
"""
