"""A server: it owns partitions, checks locks, orders and replicates appends, and feeds what was committed."""
