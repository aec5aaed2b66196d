"""One place that turns what went wrong in a rank into a word and a message."""

import traceback

import torch

from distrain.errors import DataError, DistrainError, InputError, OutputError
from distrain.events import RankFailed
from distrain.train.window import NonFiniteLoss

# What gloo, NCCL and torch's stores say when another rank is gone; they have no common type.
_PEER_SIGNS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "socket closed",
    "gloo/transport",
    "timed out waiting",
    "nccl communicator was aborted",
    "remote process exited",
    "failed to recv",
)
_MEMORY_SIGNS = ("can't allocate memory", "cannot allocate memory", "not enough memory")


def explain_failure(error: BaseException, rank: int) -> RankFailed:
    """Say why a rank cannot go on.

    >>> explain_failure(DataError("no such file"), rank=1).reason
    'DataError'
    """
    reason = _reason(error)
    if isinstance(error, DistrainError | NonFiniteLoss):
        step = error.step if isinstance(error, NonFiniteLoss) else None
        return RankFailed(rank, reason, f"rank {rank}: {error}", step)
    story = "".join(traceback.format_exception(error))
    message = f"rank {rank}: {type(error).__name__}: {error}"
    return RankFailed(rank, reason, message, traceback=story)


def _reason(error: BaseException) -> str:
    text = str(error).lower()
    match error:
        case NonFiniteLoss():
            return "NonFiniteLoss"
        case DataError():
            return "DataError"
        case InputError():
            return "InvalidSpec"
        case OutputError():
            return "OutputError"
        case MemoryError() | torch.OutOfMemoryError():
            return "OutOfMemory"
        case torch.distributed.DistError():
            return "PeerLost"
        case RuntimeError() if any(sign in text for sign in _MEMORY_SIGNS):
            return "OutOfMemory"
        case RuntimeError() | OSError() if any(sign in text for sign in _PEER_SIGNS):
            return "PeerLost"
        case _:
            return "RankFailed"
