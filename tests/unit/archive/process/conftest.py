"""The fake cluster of the part that all readers of the log share."""

from tests.unit.common.cluster.conftest import cluster

__all__ = ["cluster"]
