"""Which word a rank finds for what went wrong."""

import pytest
import torch
from torch import distributed as dist

from distrain.errors import DataError, OutputError, SchemaError, SpecError, Unavailable
from distrain.events import FAILURE_REASONS
from distrain.train.failures import explain_failure
from distrain.train.window import NonFiniteLoss

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [::1]:123"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (DataError("label is 2"), "DataError"),
        (SpecError("no steps"), "InvalidSpec"),
        (SchemaError("two targets"), "InvalidSpec"),
        (OutputError("disk full"), "OutputError"),
        (Unavailable("connection reset by peer"), "StorageUnavailable"),
        (NonFiniteLoss(7, 1, float("nan")), "NonFiniteLoss"),
        (MemoryError(), "OutOfMemory"),
        (torch.OutOfMemoryError("CUDA out of memory"), "OutOfMemory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes"), "OutOfMemory"),
        (RuntimeError(GLOO), "PeerLost"),
        (dist.DistBackendError("NCCL communicator was aborted"), "PeerLost"),
        (dist.DistStoreError("Timed out"), "PeerLost"),
        (ValueError("a bug"), "RankFailed"),
        (RuntimeError("cannot restore"), "RankFailed"),
    ],
)
def test_reason(error: Exception, reason: str) -> None:
    failure = explain_failure(error, rank=1)
    assert failure.reason == reason
    assert reason in FAILURE_REASONS
    assert failure.rank == 1
    assert failure.message.startswith("rank 1: ")


def test_our_own_errors_need_no_traceback_but_bugs_do() -> None:
    assert explain_failure(DataError("label is 2"), rank=0).traceback is None
    with pytest.raises(ValueError, match="a bug") as caught:
        raise ValueError("a bug")
    assert "test_failures_explained.py" in (explain_failure(caught.value, rank=0).traceback or "")


def test_a_non_finite_loss_keeps_its_step() -> None:
    assert explain_failure(NonFiniteLoss(7, 1, float("inf")), rank=1).step == 7
