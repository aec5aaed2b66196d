"""Where workers come from: a scheduler's address, or a new cluster on this machine."""

from distrain.cluster.connect import connect
from distrain.cluster.dashboard_token import TOKEN_VARIABLE, token_of_environment
from distrain.cluster.local import (
    check_shared_memory,
    count_gpus,
    device_of_workers,
    local_cluster,
)
from distrain.cluster.slurm_node import NOTICE_S
from distrain.cluster.sources import ClusterRequest, WorkerSource, check_cluster, open_cluster
from distrain.cluster.started import (
    STATE_FILE,
    ProcessId,
    StartedCluster,
    only_one,
    read_started,
    write_started,
)

__all__ = [
    "ClusterRequest",
    "NOTICE_S",
    "ProcessId",
    "STATE_FILE",
    "StartedCluster",
    "TOKEN_VARIABLE",
    "WorkerSource",
    "check_cluster",
    "check_shared_memory",
    "connect",
    "count_gpus",
    "device_of_workers",
    "local_cluster",
    "only_one",
    "open_cluster",
    "read_started",
    "token_of_environment",
    "write_started",
]
