"""Which word a rank finds for what went wrong."""

import pytest
import torch
from job_story import REPORTED_BY_RANKS
from torch import distributed as dist

from distrain.errors import DataError, OutputError, SchemaError, SpecError, Unavailable
from distrain.models.embeddings.peers import gather_texts
from distrain.train.rank.failures import explain_failure
from distrain.train.step.open_report import NonFiniteLoss

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
        (RuntimeError("CUDA error: out of memory"), "OutOfMemory"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED"), "OutOfMemory"),
        (dist.DistBackendError("NCCL error: Cuda failure 2 'out of memory'"), "OutOfMemory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: 99 bytes"), "OutOfMemory"),
        (RuntimeError(GLOO), "PeerLost"),
        (dist.DistBackendError("NCCL communicator was aborted"), "PeerLost"),
        (dist.DistStoreError("Timed out"), "PeerLost"),
        (dist.DistBackendError("NCCL error: ncclRemoteError: remote process exited"), "PeerLost"),
        (dist.DistBackendError("NCCL error: ncclInvalidUsage: invalid usage"), "RankFailed"),
        (dist.DistBackendError("NCCL error: ncclUnhandledCudaError: Call failed"), "RankFailed"),
        (ValueError("a bug"), "RankFailed"),
        (RuntimeError("cannot restore"), "RankFailed"),
    ],
)
def test_reason(error: Exception, reason: str) -> None:
    failure = explain_failure(error, rank=1)
    assert failure.reason == reason
    assert reason in REPORTED_BY_RANKS
    assert failure.rank == 1
    assert failure.message.startswith("rank 1: ")


def test_our_own_errors_need_no_traceback_but_bugs_do() -> None:
    assert explain_failure(DataError("label is 2"), rank=0).traceback is None
    with pytest.raises(ValueError, match="a bug") as caught:
        raise ValueError("a bug")
    assert "test_failures_explained.py" in (explain_failure(caught.value, rank=0).traceback or "")


def test_a_non_finite_loss_keeps_its_step() -> None:
    assert explain_failure(NonFiniteLoss(7, 1, float("inf")), rank=1).step == 7


def test_the_line_that_ran_out_of_memory_is_named_in_whatever_room() -> None:
    class Full:
        @property
        def num_ranks(self) -> int:
            raise MemoryError

    with pytest.raises(MemoryError) as caught:
        gather_texts(Full(), torch.device("cpu"), "")  # type: ignore[arg-type]
    message = explain_failure(caught.value, rank=0).message
    assert "allocated by: distrain/models/embeddings/peers.py:" in message
    assert "in gather_texts: if peers.num_ranks == 1:" in message


def test_an_error_that_prints_a_whole_tensor_is_shortened():
    try:
        raise ValueError("begin " + "x" * 2**20 + " end")
    except ValueError as error:
        told = explain_failure(error, 0)
    for text in (told.message, told.traceback):
        assert len(text) < 2**15
        assert "characters" in text
        assert text.rstrip().endswith("end")
