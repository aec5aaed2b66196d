"""Where workers come from: a scheduler's address, or a new cluster on this machine."""

from distrain.cluster.local import (
    check_shared_memory as check_shared_memory,
    count_gpus as count_gpus,
    dashboard_link as dashboard_link,
    device_of_workers as device_of_workers,
    local_cluster as local_cluster,
)
from distrain.cluster.replacing import why_lost as why_lost
from distrain.cluster.secrets import (
    TOKEN_VARIABLE as TOKEN_VARIABLE,
    token_of_environment as token_of_environment,
)
from distrain.cluster.serve_slurm import (
    INTERFACE_VARIABLE as INTERFACE_VARIABLE,
    NOTICE_S as NOTICE_S,
)
from distrain.cluster.sources import (
    ClusterRequest as ClusterRequest,
    check_cluster as check_cluster,
    connect as connect,
    open_cluster as open_cluster,
)
from distrain.cluster.started import (
    ProcessId as ProcessId,
    StartedCluster as StartedCluster,
    only_one as only_one,
    read_started as read_started,
)
