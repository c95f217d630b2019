"""Where consumers keep how far they have come."""
