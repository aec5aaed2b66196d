"""Checkpoints written by all ranks together, mostly while they train on."""

import contextlib
import json
import math
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from distrain.checkpoint.checkpoint_dir import CheckpointDir, name_of
from distrain.checkpoint.checkpoint_write import (
    CheckpointPlan,
    CheckpointWrite,
    Report,
    WriterSettings,
    in_words,
)
from distrain.checkpoint.local_rows import local_rows_of, share_of
from distrain.checkpoint.manifest import Manifest
from distrain.checkpoint.rank_store import RankStore
from distrain.checkpoint.shard import ShardContent, content_of, copied
from distrain.checkpoint.training_state import TrainingState, facts_of
from distrain.embeddings import CanonicalTensor, Peers
from distrain.host_memory import empty
from distrain.storage import PAGE_BYTES

PATIENCE_S = 600.0  # how long ranks wait for each other's files before a checkpoint is given up


@dataclass(frozen=True)
class SaveResult:
    stood_still_s: float  # how long it kept this rank from training
    whole: bool | None  # whether the checkpoint is whole; `None` if it is still being written


class CheckpointWriter:
    """Writes a training's checkpoints; one object on every rank.

    Each rank writes a file with the rows that it alone holds and its share of the rest. Rank 0
    then writes the manifest, which makes the checkpoint one, and removes older ones. If any rank
    could not write, the files of the others are removed, `report` gets it on rank 0, and training
    goes on: nothing here raises for a disk that is full or a server that is gone.

    Args:
        peers: This rank among the others; no collective operation is done.
        store: For the ranks' posts; no two writers share one.
        asynchronous: Whether a thread writes, from a copy, while training goes on.
        before_told: Called when this rank's file is written, before the others hear of it; an error
            of it keeps the checkpoint from becoming whole.
    """

    def __init__(
        self,
        directory: CheckpointDir,
        state: TrainingState,
        peers: Peers,
        store: RankStore,
        *,
        keep: int,
        asynchronous: bool = True,
        report: Report | None = None,
        progress: Callable[[], None] | None = None,
        before_told: Callable[[], None] | None = None,
        patience_s: float = PATIENCE_S,
    ):
        self._state = state
        self._asynchronous = asynchronous
        self._patience_s = patience_s
        self._progress = progress or _nothing
        self._closing = threading.Event()
        report, closing = report or _nothing, self._closing
        self._settings = WriterSettings(
            directory,
            peers,
            store,
            keep,
            report,
            self._progress,
            before_told or _nothing,
            patience_s,
            closing,
        )
        self._number = 0
        self._last: CheckpointWrite | None = None
        self._thread: threading.Thread | None = None
        self._buffer = empty((0,), torch.uint8)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the copy on the host, from the first asynchronous checkpoint on."""
        return len(self._buffer)

    @property
    def thread(self) -> int | None:
        """The `ident` of the thread that writes; `None` while nothing is being written."""
        return None if self._thread is None else self._thread.ident

    def save(
        self,
        step: int,
        attempt: int,
        values: Mapping[str, Any],
        rank_tensors: Mapping[str, Tensor],
        auc: float | None = None,
        *,
        best_step: int | None = None,
        wait: bool = False,
    ) -> SaveResult:
        """Save the state as it is now; every rank calls it at the same steps, in the same order.

        Asynchronous: this rank's share is copied, and a thread writes the copy; the tensors may
        change as soon as this returns. One that is still being written is waited for first.
        Otherwise, or with `wait`, the live tensors are written, and this returns when it is whole
        on all ranks, or has failed. A step that this writer has saved already is not written again.

        Args:
            values: What else to keep, as JSON values; those of rank 0 are saved.
            rank_tensors: Small tensors that each rank has its own of, by name.
            best_step: The step of a checkpoint that is kept besides the newest: the best so far.
        """
        started_s = monotonic()
        saved_before = self.wait(self._patience_s)
        name = name_of(step, attempt)
        self._number += 1  # also for what is not written, so that all ranks count alike
        if saved_before and self._last is not None and self._last.plan.name == name:
            return SaveResult(monotonic() - started_s, True)
        tensors = self._state.tensors()
        manifest = Manifest(
            step,
            attempt,
            auc if auc is not None and math.isfinite(auc) else None,
            json.loads(json.dumps(dict(values))),
            self._state.facts(),
            facts_of(tensors),
            (),
            self._settings.directory.run,
        )
        plan = CheckpointPlan(name, self._number, manifest, best_step)
        self._forget_last_posts()
        behind = self._asynchronous and not wait
        content = self._content(tensors, rank_tensors, behind)
        before = None if self._last is None else self._last.plan
        one = self._last = CheckpointWrite(self._settings, plan, before, content, started_s)
        if not behind or self._thread is not None:
            whole = one.run()
            return SaveResult(monotonic() - started_s, whole)
        stood_still_s = one.stood_still_s = monotonic() - started_s
        self._thread = threading.Thread(target=one.run, name="checkpoint", daemon=True)
        self._thread.start()
        return SaveResult(stood_still_s, None)

    def wait(self, timeout_s: float = PATIENCE_S) -> bool | None:
        """Wait for the writing; whether the last checkpoint is whole, `None`: none or not yet."""
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return None
            self._thread = None
        return None if self._last is None else self._last.whole

    def close(self, timeout_s: float = 5.0) -> None:
        """Within `timeout_s`, finish what waits for the disk; give up what waits for ranks."""
        self._closing.set()
        self.wait(timeout_s)

    def _content(
        self,
        tensors: Mapping[str, Tensor | CanonicalTensor],
        rank_tensors: Mapping[str, Tensor],
        behind: bool,
    ) -> ShardContent | str:
        """This rank's share, copied if training goes on meanwhile; or in words why none."""
        if self._thread is not None:
            return f"the one before was still being written after {self._patience_s:.0f} s"
        try:
            peers = self._settings.peers
            share = share_of(local_rows_of(tensors), peers.rank, peers.num_ranks)
            content = content_of(share, rank_tensors)
            if not behind:
                return content
            if self.buffer_bytes < content.num_bytes:
                self._buffer = empty((0,), torch.uint8)  # gone before the new one is there
                self._buffer = empty((content.num_bytes,), torch.uint8, align_bytes=PAGE_BYTES)
            with torch.no_grad():
                return copied(content, self._buffer, self._progress)
        except Exception as error:  # the others must hear of it, whatever it is
            return in_words(error)

    def _forget_last_posts(self) -> None:
        """Delete the posts about the checkpoint before: rank 0 has read them."""
        if self._last is not None and self._settings.peers.rank != 0:
            with contextlib.suppress(OSError, RuntimeError):
                self._settings.store.clear(self._last.plan.all_done_key)


def _nothing(*_: object) -> None:
    pass
