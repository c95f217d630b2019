"""Cluster membership: who is there, who owns which partition, and who is told of it."""
