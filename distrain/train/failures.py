"""One place that turns what went wrong in a rank into a word and a message."""

import traceback
from pathlib import Path

import torch

from distrain.errors import DataError, DistrainError, InputError, OutputError, Unavailable
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
_MEMORY_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    # CUDA's runtime and driver, NCCL, and cuBLAS when it makes its workspace.
    "out of memory",
    "cublas_status_alloc_failed",
)
_MEMORY_HINT = (
    "`distrain plan` tells what a rank will hold. Raise train.micro_batches, lower "
    "train.global_batch_size or model.embedding_dim, or take more ranks with "
    "embeddings.placement row_wise."
)
_PACKAGE = Path(__file__).parents[1]


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
    if reason == "OutOfMemory":
        message += f"\n  asked for by: {_who_asked(error)}\n  hint: {_MEMORY_HINT}"
    return RankFailed(rank, reason, message, traceback=story)


def _who_asked(error: BaseException) -> str:
    """The last line of distrain's own that was on its way when an error came."""
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_PACKAGE)
    ]
    if not own:
        return "nothing of distrain's; see the traceback"
    frame = own[-1]
    place = Path(frame.filename).relative_to(_PACKAGE.parent)
    return f"{place}:{frame.lineno}, in {frame.name}: {frame.line}"


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
        case Unavailable():
            return "StorageUnavailable"
        case MemoryError() | torch.OutOfMemoryError():
            return "OutOfMemory"
        # Before what is lost with a peer: NCCL, too, tells so that the GPU is full.
        case RuntimeError() if any(sign in text for sign in _MEMORY_SIGNS):
            return "OutOfMemory"
        case torch.distributed.DistError():
            return "PeerLost"
        case RuntimeError() | OSError() if any(sign in text for sign in _PEER_SIGNS):
            return "PeerLost"
        case _:
            return "RankFailed"
