"""The reasons why attempts and jobs end early, and the texts by which errors are recognised."""

from enum import StrEnum


class Reason(StrEnum):
    """Why an attempt, or a job, ended early; the value is the word in files and messages.

    Attributes:
        meaning: What happened, in Markdown.
        advice: What to do about it, in Markdown; "" where nothing has to be done.
    """

    meaning: str
    advice: str

    def __new__(cls, word: str, meaning: str, advice: str = "") -> "Reason":
        """Make a member whose value is the word."""
        reason = str.__new__(cls, word)
        reason._value_, reason.meaning, reason.advice = word, meaning, advice
        return reason

    DATA_ERROR = (
        "DataError",
        "a file is missing, damaged, or holds a value that cannot be used; or the ranks see "
        "different files",
        "the message names file, row group, column and value",
    )
    INVALID_SPEC = (
        "InvalidSpec",
        "the spec does not fit the data or the machine, such as `device: cuda` without a GPU; or "
        "`checkpoint.dir` belongs to another run",
        "the message names the field",
    )
    NON_FINITE_LOSS = (
        "NonFiniteLoss",
        "the loss became NaN or infinite",
        "lower `train.optimizer.lr`, add `train.schedule.warmup_steps`, look for extreme values",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "the device's or the host's memory did not suffice",
        "lower `train.global_batch_size` or `data.prefetch_batches`; smaller embeddings",
    )
    OUTPUT_ERROR = (
        "OutputError",
        "the model or a log could not be written, or no checkpoint at all in `checkpoint.dir`",
        "the message names path and cause; is the run folder on a shared filesystem?",
    )
    COLLECTIVE_TIMEOUT = (
        "CollectiveTimeout",
        "no rank made progress, and some ranks waited for one that did not arrive",
        "the message names that rank, what it does and its stacks",
    )
    NO_PROGRESS = (
        "NoProgress",
        "no rank made progress, and no rank waited for another",
        "the message names the rank, what it does and its stacks",
    )
    PREEMPTED = (
        "Preempted",
        "a termination notice or a preemption, and no restart was left, or the cluster had ended",
        "`distrain train --resume`; raise `restart.max_preemptions`",
    )
    RESIZED = ("Resized", "stopped to continue with more ranks; never the reason of a job's end")
    COORDINATOR_LOST = (
        "CoordinatorLost",
        "the scheduler was lost while a command followed the job, or the command ended or was "
        "killed while it trained in its own process; in a service, the scheduler was lost six "
        "times while it had the job",
        "`distrain train --resume`; in a service, first read the scheduler's log, because the job "
        "may be the cause, then run `distrain resume JOB`",
    )
    PEER_LOST = (
        "PeerLost",
        "a collective operation failed because another rank was gone or hung, and no rank "
        "reported another cause",
        "the message names the ranks without a report: read their logs first, then check the "
        "network and the machines",
    )
    STORAGE_UNAVAILABLE = (
        "StorageUnavailable",
        "data or checkpoints could not be read for `data.retry_s` seconds, because of a temporary "
        "error",
        "the message names the file; check the server and the network, then continue with "
        "`--resume`",
    )
    RANK_FAILED = (
        "RankFailed",
        "any other exception in a rank, or ranks that could not be launched",
        "the traceback is in the message",
    )
    RANK_DIED = (
        "RankDied",
        "a rank's process ended without a report",
        "often the kernel's out-of-memory killer: see `dmesg` on that host",
    )
    WORKER_LOST = ("WorkerLost", "a rank's Dask worker left the cluster", "the worker's own log")
    QUEUE_DEADLINE_EXCEEDED = (
        "QueueDeadlineExceeded",
        "the job was not assigned to workers within `deadlines.queue_s` of its submission",
        "the message says what the job waited for: workers, or another job; without the deadline "
        "it waits indefinitely",
    )
    START_DEADLINE_EXCEEDED = (
        "StartDeadlineExceeded",
        "not all ranks of an attempt trained within `deadlines.start_s` of their assignment to "
        "workers, or a restart waited that long for its workers",
        "the message names the missing ranks or workers",
    )
    DEADLINE_EXCEEDED = (
        "DeadlineExceeded",
        "the job did not end within `deadlines.total_s`",
        "raise it, or train less",
    )
    CANCELLED = (
        "Cancelled",
        "the job was stopped on request",
        "the message names the cause if it is known, such as a command that received Ctrl-C or "
        "SIGTERM, and its host",
    )


LEFT_OFF = frozenset({Reason.PREEMPTED, Reason.COORDINATOR_LOST})
"""Reasons of an end after which the job may continue in another cluster, even without a
checkpoint.
"""


# Libraries have no common exception type for a lost peer or for lack of memory; only their texts
# show it. A rank classifies its own error by these signs, and `runs` looks for them in logs.
# Parts of error messages of gloo, NCCL and torch's stores, in lower case.
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
    "watchdog caught collective operation timeout",
)
# NCCL's result codes if the rank itself made a mistake, or its GPU is broken, in lower case.
_OWN_FAULT_SIGNS = ("ncclinvalidusage", "ncclinvalidargument", "ncclunhandledcudaerror")
# Parts of error messages of CUDA's runtime and driver, NCCL, and cuBLAS, in lower case.
_MEMORY_SIGNS = (
    "can't allocate memory",
    "cannot allocate memory",
    "not enough memory",
    "out of memory",
    "cublas_status_alloc_failed",
)


def says_out_of_memory(text: str) -> bool:
    """Return True if an error's text says that host or device memory ran out."""
    text = text.lower()
    return any(sign in text for sign in _MEMORY_SIGNS)


def says_own_fault(text: str) -> bool:
    """Return True if NCCL's text says that this rank used NCCL wrongly, or that its GPU failed."""
    text = text.lower()
    return any(sign in text for sign in _OWN_FAULT_SIGNS)


def says_peer_lost(text: str) -> bool:
    """Return True if an error's text says only that another rank is gone.

    The failure of that other rank is then the cause, not this error.

    >>> says_peer_lost("RuntimeError: Connection closed by peer [::1]:123")
    True
    >>> says_peer_lost("NCCL communicator was aborted: CUDA out of memory")
    False
    """
    # NCCL reports a full GPU with the words of a failed connection.
    if says_out_of_memory(text) or says_own_fault(text):
        return False
    text = text.lower()
    return any(sign in text for sign in _PEER_SIGNS)
