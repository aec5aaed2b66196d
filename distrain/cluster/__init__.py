"""Where workers come from: a scheduler's address, or a new cluster on this machine."""

from distrain.cluster.connect import connect
from distrain.cluster.dashboard_token import TOKEN_VARIABLE, token_of_environment
from distrain.cluster.local import count_gpus, local_cluster
from distrain.cluster.sources import ClusterRequest, WorkerSource, check_cluster, open_cluster

__all__ = [
    "ClusterRequest",
    "TOKEN_VARIABLE",
    "WorkerSource",
    "check_cluster",
    "connect",
    "count_gpus",
    "local_cluster",
    "open_cluster",
    "token_of_environment",
]
