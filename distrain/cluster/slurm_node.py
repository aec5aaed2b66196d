"""What a task of a Slurm job learns of its place from Slurm's variables."""

import socket
from collections.abc import Mapping

from distrain.errors import ClusterError

INTERFACE_VARIABLE = "DISTRAIN_INTERFACE"
"""The workers' environment variable that names the interface of their ranks."""

NOTICE_S = 120
"""How long a job has to leave after it was told: its ranks save checkpoints, its tasks end."""


def life_of(environment: Mapping[str, str]) -> str:
    """A job's start: a job that is requeued keeps its number.

    >>> life_of({"SLURM_JOB_ID": "12"}), life_of({"SLURM_JOB_ID": "12", "SLURM_RESTART_COUNT": "2"})
    ('12-0', '12-2')
    """
    return f"{environment['SLURM_JOB_ID']}-{environment.get('SLURM_RESTART_COUNT') or '0'}"


def gpu_of(environment: Mapping[str, str]) -> str:
    """The GPU of this task, as CUDA_VISIBLE_DEVICES names it.

    Tasks that share a node's GPUs see all of them, so that NCCL can copy from one to another; each
    takes that of its place on the node. Where Slurm shows a task one GPU alone, it is that.

    >>> gpu_of({"CUDA_VISIBLE_DEVICES": "4,5,6,7", "SLURM_LOCALID": "2"})
    '6'
    """
    place = int(environment.get("SLURM_LOCALID") or 0)
    shown = [name for name in environment.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    on_node = int(environment.get("SLURM_GPUS_ON_NODE") or len(shown) or place + 1)
    if place >= on_node or (len(shown) > 1 and place >= len(shown)):
        raise ClusterError(
            f"task {place} of this node has no GPU of its own",
            where={"node": socket.gethostname(), "GPUs of the job on it": on_node},
            hint="Ask for as many GPUs as tasks: --ntasks-per-node=N --gpus-per-node=N.",
        )
    if not shown:  # a Slurm that does not know of its GPUs
        return str(place)
    return shown[place] if len(shown) > 1 else shown[0]


def listening_words(environment: Mapping[str, str]) -> list[str]:
    interface = environment.get(INTERFACE_VARIABLE)
    return ["--interface", interface] if interface else ["--host", address_of_node(environment)]


def address_of_node(environment: Mapping[str, str]) -> str:
    """This node's name; its address where the name means loopback and the job has other nodes."""
    name = socket.gethostname()
    if int(environment.get("SLURM_JOB_NUM_NODES") or 1) < 2 or not _is_loopback(name):
        return name
    from distributed.utils import get_ip

    return str(get_ip())


def _is_loopback(name: str) -> bool:
    try:
        return socket.gethostbyname(name).startswith("127.")
    except OSError:
        return True  # others cannot resolve it either
