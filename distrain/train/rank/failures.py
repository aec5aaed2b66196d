"""Turns a rank's error into a failure reason and a message."""

import traceback
from pathlib import Path

import torch

import distrain
from distrain.errors import DataError, DistrainError, InputError, OutputError, Unavailable
from distrain.jobs.events import RankFailed
from distrain.jobs.reasons import (
    Reason,
    says_out_of_memory,
    says_own_fault,
    says_peer_lost,
)
from distrain.train.control.rank_setup import MissingRanks
from distrain.train.step.open_report import NonFiniteLoss

_MEMORY_HINT = (
    "`distrain plan` shows the memory of a rank, and into how many slices it cuts batches. Raise "
    "train.micro_batches, lower train.global_batch_size or model.embedding_dim, or use more ranks "
    "with embeddings.placement row_wise."
)
_PACKAGE = Path(distrain.__file__).parent


_TEXT_CHARS = 16_384  # of a message, and of a traceback: some errors contain whole tensors


def explain_failure(error: BaseException, rank: int) -> RankFailed:
    """Return the report of a rank's error; long texts are cut in the middle.

    For a `DistrainError` or a `NonFiniteLoss`, the report has a message for users and no traceback.

    >>> explain_failure(DataError("no such file"), rank=1).reason.value
    'DataError'
    """
    reason = _reason(error)
    if isinstance(error, DistrainError | NonFiniteLoss):
        step = error.step if isinstance(error, NonFiniteLoss) else None
        return RankFailed(rank, reason, _shortened(f"rank {rank}: {error}"), step)
    story = _shortened("".join(traceback.format_exception(error)))
    message = _shortened(f"rank {rank}: {type(error).__name__}: {error}")
    if reason == Reason.OUT_OF_MEMORY:
        message += f"\n  allocated by: {_innermost_own_line(error)}\n  hint: {_MEMORY_HINT}"
    return RankFailed(rank, reason, message, traceback=story)


def _shortened(text: str) -> str:
    if len(text) <= _TEXT_CHARS:
        return text
    half = _TEXT_CHARS // 2
    return f"{text[:half]}\n... {len(text) - 2 * half:,} characters ...\n{text[-half:]}"


def _innermost_own_line(error: BaseException) -> str:
    """Return the innermost line of distrain's code in an error's traceback.

    The text has the line's file and number, its function and its code. If the traceback has no such
    line, return a text that says so.
    """
    own = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).is_relative_to(_PACKAGE)
    ]
    if not own:
        return "not distrain's code; see the traceback"
    frame = own[-1]
    place = Path(frame.filename).relative_to(_PACKAGE.parent)
    return f"{place}:{frame.lineno}, in {frame.name}: {frame.line}"


def _reason(error: BaseException) -> Reason:
    match error:
        case NonFiniteLoss():
            return Reason.NON_FINITE_LOSS
        case DataError():
            return Reason.DATA_ERROR
        case InputError():
            return Reason.INVALID_SPEC
        case OutputError():
            return Reason.OUTPUT_ERROR
        case Unavailable():
            return Reason.STORAGE_UNAVAILABLE
        case MemoryError() | torch.OutOfMemoryError():
            return Reason.OUT_OF_MEMORY
        # Before lost peers, since NCCL also reports a full GPU.
        case RuntimeError() if says_out_of_memory(str(error)):
            return Reason.OUT_OF_MEMORY
        case MissingRanks():
            return Reason.PEER_LOST
        case torch.distributed.DistError() if not says_own_fault(str(error)):
            return Reason.PEER_LOST
        case RuntimeError() | OSError() if says_peer_lost(str(error)):
            return Reason.PEER_LOST
        case _:
            return Reason.RANK_FAILED
