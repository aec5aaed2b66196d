"""Where workers come from."""

from distrain.cluster.connect import connect
from distrain.cluster.local import count_gpus, local_cluster, open_cluster

__all__ = ["connect", "count_gpus", "local_cluster", "open_cluster"]
