"""Writes checkpoints on all ranks together, usually while they train."""

import contextlib
import json
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import torch
from torch import Tensor

from distrain.loader.host_memory import empty
from distrain.models.embeddings.canonical_state import CanonicalTensor
from distrain.storage.folder import PAGE_BYTES
from distrain.train.checkpoint.checkpoint_dir import name_of
from distrain.train.checkpoint.checkpoint_write import (
    PATIENCE_S,
    CheckpointPlan,
    CheckpointWrite,
    WriterSettings,
    in_words,
)
from distrain.train.checkpoint.local_rows import local_rows_of, rows_to_write
from distrain.train.checkpoint.manifest import Manifest
from distrain.train.checkpoint.shard import ShardContent, content_of, copied
from distrain.train.checkpoint.training_state import facts_of


@dataclass(frozen=True)
class SaveResult:
    stood_still_s: float  # seconds for which this rank's training paused
    whole: bool | None  # whether the checkpoint is complete; `None` while it is written


@dataclass(eq=False)
class CheckpointWriter(WriterSettings):
    """Writes a training's checkpoints; every rank has an instance.

    Each rank writes a file with the rows that only it holds and its share of the rest. Rank 0 then
    writes the manifest, which completes the checkpoint, and removes older ones. If any rank cannot
    write, the files of the others are removed, `report` is called on rank 0, and training
    continues. No method raises for a full disk or an unreachable server.
    """

    def __post_init__(self) -> None:
        self._number = 0
        self._last: CheckpointWrite | None = None
        self._thread: threading.Thread | None = None
        self._buffer = empty((0,), torch.uint8)

    @property
    def buffer_bytes(self) -> int:
        return len(self._buffer)

    @property
    def thread(self) -> int | None:
        """The `ident` of the thread of the last checkpoint; `None` without one, or after `wait`."""
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
        """Save the current state; every rank calls it at the same steps, in the same order.

        If a checkpoint is still being written, `save` first waits for it; after `patience_s`
        seconds, the new checkpoint fails. With `asynchronous`, this rank's share is copied, and a
        thread writes the copy: the tensors may change as soon as `save` returns. Otherwise, or with
        `wait`, the live tensors are written, and `save` returns when the checkpoint is complete on
        all ranks, or has failed. If the last checkpoint of this writer is complete and of the same
        step, nothing is written.

        Args:
            values: JSON values; those of rank 0 are saved.
            rank_tensors: This rank's own tensors, such as its random state; every rank's are saved.
            auc: The model's AUC, for the manifest; `None` or a non-finite value means unknown.
            best_step: The step whose checkpoint is kept, besides the newest ones.
        """
        started_s = monotonic()
        saved_before = self.wait(self.patience_s)
        name = name_of(step, attempt)
        self._number += 1  # counted for skipped ones too, so that the counts of all ranks are equal
        if saved_before and self._last is not None and self._last.plan.name == name:
            return SaveResult(monotonic() - started_s, True)
        tensors = self.state.tensors()
        manifest = Manifest(
            step,
            attempt,
            auc if auc is not None and math.isfinite(auc) else None,
            json.loads(json.dumps(dict(values))),
            self.state.facts(),
            facts_of(tensors),
            (),
            self.directory.run,
        )
        plan = CheckpointPlan(name, self._number, manifest, best_step)
        self._forget_last_posts()
        behind = self.asynchronous and not wait
        content = self._content(tensors, rank_tensors, behind)
        before = None if self._last is None else self._last.plan
        one = self._last = CheckpointWrite(self, plan, before, content, started_s)
        if not behind or self._thread is not None:
            whole = one.run()
            return SaveResult(monotonic() - started_s, whole)
        stood_still_s = one.stood_still_s = monotonic() - started_s
        self._thread = threading.Thread(target=one.run, name="checkpoint", daemon=True)
        self._thread.start()
        return SaveResult(stood_still_s, None)

    def wait(self, timeout_s: float = PATIENCE_S) -> bool | None:
        """Wait until the last checkpoint is written; return whether it is complete.

        Returns `None` if there is no checkpoint yet, or writing takes longer than `timeout_s`.
        """
        if self._thread is not None:
            self._thread.join(timeout_s)
            if self._thread.is_alive():
                return None
            self._thread = None
        return None if self._last is None else self._last.whole

    def close(self, timeout_s: float = 5.0) -> None:
        """Stop waiting for other ranks' files; wait up to `timeout_s` for this rank's writing."""
        self.given_up.set()
        self.wait(timeout_s)

    def _content(
        self,
        tensors: Mapping[str, Tensor | CanonicalTensor],
        rank_tensors: Mapping[str, Tensor],
        behind: bool,
    ) -> ShardContent | str:
        """Return the content of this rank's file, or the reason why it cannot be written.

        With `behind`, the content is a copy, which a thread can write while training continues.
        """
        if self._thread is not None:
            return f"the one before was still being written after {self.patience_s:.0f} s"
        try:
            peers = self.peers
            share = rows_to_write(local_rows_of(tensors), peers.rank, peers.num_ranks)
            content = content_of(share, rank_tensors)
            if not behind:
                return content
            if self.buffer_bytes < content.num_bytes:
                self._buffer = empty((0,), torch.uint8)  # freed before the new one is allocated
                self._buffer = empty((content.num_bytes,), torch.uint8, align_bytes=PAGE_BYTES)
            with torch.no_grad():
                return copied(content, self._buffer, self.progress)
        except Exception as error:  # the other ranks must receive any error
            return in_words(error)

    def _forget_last_posts(self) -> None:
        """Delete this rank's post `all_done_key` about the previous checkpoint, if it has one.

        Rank 0, which has read it, has no such post. Errors of the store are ignored.
        """
        if self._last is not None and self.peers.rank != 0:
            with contextlib.suppress(OSError, RuntimeError):
                self.store.clear(self._last.plan.all_done_key)
