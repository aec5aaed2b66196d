"""Writes one checkpoint, together with the other ranks: this rank's file, then the manifest.

Each rank writes its file. All ranks except rank 0 then post a description of their file, or the
reason for their failure, to the store. The last of them posts that all results are there. Rank 0
waits for this post and reads the results. It either writes the manifest or removes the files, and
posts the outcome. So no rank queries every other rank.
"""

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from time import monotonic, sleep

from distrain.errors import DistrainError
from distrain.jobs.events import CheckpointSaved, CheckpointTrouble
from distrain.models.embeddings.peers import Peers
from distrain.storage.folder import Folder, open_folder
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, prune
from distrain.train.checkpoint.manifest import MANIFEST_FILE, Manifest
from distrain.train.checkpoint.rank_store import RankStore
from distrain.train.checkpoint.shard import Shard, ShardContent, shard_file, write_shard
from distrain.train.checkpoint.training_state import TrainingState

Report = Callable[[CheckpointSaved | CheckpointTrouble], None]

PATIENCE_S = 600.0  # how long ranks wait for each other's files before they abandon a checkpoint
_SEEN_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.1
_WHOLE = "whole"
_FAILED = "failed"


def _nothing(*_: object) -> None:
    pass


@dataclass(eq=False)
class WriterSettings:
    """Settings of all checkpoints of a rank."""

    directory: CheckpointDir
    state: TrainingState
    peers: Peers  # this rank among the others; not used for collective operations
    store: RankStore  # for the ranks' posts; not shared between writers
    _: KW_ONLY
    keep: int
    asynchronous: bool = True  # whether a thread writes a copy while training continues
    report: Report = _nothing  # called on rank 0 only
    progress: Callable[[], None] = _nothing  # called after each slab that is copied or written
    patience_s: float = PATIENCE_S
    # once it is set, ranks no longer wait for each other
    given_up: threading.Event = field(default_factory=threading.Event, init=False)


@dataclass(frozen=True)
class CheckpointPlan:
    """The facts of a checkpoint that all ranks share, and the keys for their results in the store.

    A rank *posts* a text by setting it under a key of the `RankStore`, which all ranks can read.
    """

    name: str
    number: int  # counts this writer's checkpoints, from 1
    manifest: Manifest  # its manifest without files
    best_step: int | None = None  # the step whose checkpoint is kept, besides the newest ones

    @property
    def written_key(self) -> str:
        """The key to which all ranks except rank 0 add their results."""
        return f"checkpoint/{self.number}/{self.name}/written"

    @property
    def all_done_key(self) -> str:
        """The key that is posted once all ranks except rank 0 have added their results."""
        return f"checkpoint/{self.number}/{self.name}/all-told"

    @property
    def outcome_key(self) -> str:
        """The key of the outcome (whether the checkpoint is complete), which rank 0 posts."""
        return f"checkpoint/{self.number}/{self.name}/outcome"


@dataclass
class CheckpointWrite:
    """The writing of one checkpoint by one rank: call `run` once, in any thread."""

    settings: WriterSettings
    plan: CheckpointPlan
    before: CheckpointPlan | None  # this writer's last checkpoint before this one
    content: ShardContent | str  # this rank's share, or the reason why it has none
    started_s: float  # the monotonic time at which training paused for it
    stood_still_s: float | None = None  # the pause of training; `None` while it lasts
    whole: bool | None = None  # the outcome; `None` until then

    def run(self) -> bool:
        """Write the checkpoint; return True if it is complete.

        No error of writing is raised; rank 0 reports the errors of all ranks.
        """
        whole = False
        self._began_s = monotonic()
        try:
            written = self._write_own()
            first = self.settings.peers.rank == 0
            whole = self._finish(written) if first else self._follow(written)
        finally:
            self.whole = whole
        return whole

    def _write_own(self) -> Shard | str:
        """Write this rank's file; return its description, or the reason why there is none."""
        peers, content, self.content = self.settings.peers, self.content, ""
        if isinstance(content, str):
            return content
        try:
            folder = self.settings.directory.folder(self.plan.name)
            folder.make()
            file = shard_file(peers.rank, peers.num_ranks)
            shard = write_shard(folder, file, content, self.settings.progress)
            folder.sync()
        except Exception as error:  # training continues after any error
            return in_words(error)
        return shard

    def _follow(self, written: Shard | str) -> bool:
        """Post this rank's result and wait; return True if the checkpoint is complete.

        All ranks except rank 0 call it. `written` is this rank's file, or the reason why there is
        none.
        """
        store, settings = self.settings.store, self.settings
        peers, plan = settings.peers, self.plan
        written_json = (
            {"error": written} if isinstance(written, str) else {"shard": written.to_json()}
        )
        try:
            count = store.add(plan.written_key, json.dumps({"rank": peers.rank} | written_json))
            if count == peers.num_ranks - 1:
                store.post(plan.all_done_key, "")
            outcome = store.read(plan.outcome_key, settings.patience_s, settings.given_up)
        except (OSError, RuntimeError):  # no rank can receive a report
            return False
        return outcome == _WHOLE

    def _finish(self, written: Shard | str) -> bool:
        """Wait for all ranks, then complete or remove the checkpoint; return True if complete.

        Only rank 0 calls it.
        """
        outcomes = [written, *self._read_others()]
        problems = [f"rank {r}: {text}" for r, text in enumerate(outcomes) if isinstance(text, str)]
        shards = [shard for shard in outcomes if isinstance(shard, Shard)]
        if not problems:
            try:
                self._write_manifest(shards)
            except Exception as error:  # training continues after any error
                problems = [in_words(error)]
        if problems:
            self._remove()  # before the others get the outcome, since they may then write there
        self._announce(_FAILED if problems else _WHOLE)
        if problems:
            url = f"{self.settings.directory.url}/{self.plan.name}"
            message = f"the checkpoint {url} was not written: {'; '.join(problems)}"
            self._report_trouble(message, self.plan.manifest.step)
            return False
        self._report_saved(sum(shard.size_bytes for shard in shards), monotonic() - self._began_s)
        self._prune()
        return True

    def _read_others(self) -> list[Shard | str]:
        """Return the results of the other ranks, in rank order.

        A result is the description of the rank's file, or the reason why there is none (such as a
        timeout).
        """
        settings, plan, others = self.settings, self.plan, range(1, self.settings.peers.num_ranks)
        by_rank: dict[int, Shard | str] = {}
        why_not = "no report"
        try:
            try:
                if others:
                    settings.store.read(plan.all_done_key, settings.patience_s, settings.given_up)
            except TimeoutError:
                ended = settings.given_up.is_set()
                how = "training ended" if ended else f"{settings.patience_s:.0f} s passed"
                why_not = f"no report before {how}"
            if others:
                by_rank = dict(
                    _parse_written(text) for text in settings.store.take(plan.written_key)
                )
        except (OSError, RuntimeError) as error:
            why_not = f"no report: {in_words(error)}"
        return [by_rank.get(rank, why_not) for rank in others]

    def _write_manifest(self, shards: list[Shard]) -> None:
        """Complete the checkpoint: write the manifest with the files of all ranks.

        Raises `OSError` if a file does not appear in time or has another size than its rank wrote,
        or if rows are in no file.
        """
        plan, directory = self.plan, self.settings.directory
        folder = directory.folder(plan.name)
        for rank, shard in enumerate(shards):
            size = _size_soon(folder, shard.file, rank)
            if size != shard.size_bytes:
                raise OSError(f"{shard.file} has {size:,} bytes, not {shard.size_bytes:,}")
        manifest = replace(plan.manifest, shards=shards)
        lacking = manifest.lacking()
        if lacking:
            raise OSError("no rank wrote all of " + "; ".join(lacking))
        folder.put(MANIFEST_FILE, manifest.to_bytes())
        open_folder(directory.url).sync()

    def _announce(self, outcome: str) -> None:
        store = self.settings.store
        with contextlib.suppress(OSError, RuntimeError):
            if self.before is not None:
                store.clear(self.before.outcome_key)
            store.post(self.plan.outcome_key, outcome)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self.settings.directory.folder(self.plan.name).remove(first=[MANIFEST_FILE])

    def _prune(self) -> None:
        settings, plan = self.settings, self.plan
        try:
            prune(settings.directory, plan.name, settings.keep, plan.best_step)
        except OSError as error:
            self._report_trouble(
                f"old checkpoints in {settings.directory.url} were not removed: {in_words(error)}"
            )

    def _report_saved(self, size_bytes: int, write_s: float) -> None:
        stood_still_s = self.stood_still_s
        if stood_still_s is None:
            stood_still_s = monotonic() - self.started_s
        url, manifest = self.settings.directory.folder(self.plan.name).url, self.plan.manifest
        self.settings.report(
            CheckpointSaved(0, manifest.step, url, size_bytes, stood_still_s, write_s, manifest.auc)
        )

    def _report_trouble(self, message: str, step: int | None = None) -> None:
        self.settings.report(CheckpointTrouble(0, message, step))


def _parse_written(text: str) -> tuple[int, Shard | str]:
    posted = json.loads(text)
    shard = Shard.from_json(posted["shard"]) if "shard" in posted else str(posted["error"])
    return posted["rank"], shard


def _size_soon(folder: Folder, file: str, rank: int) -> int:
    """Return the size of a rank's file in bytes; waits, as a shared filesystem may show it late.

    Raises `OSError` if the file does not appear within `_SEEN_WITHIN_S`.
    """
    until_s = monotonic() + _SEEN_WITHIN_S
    while True:
        try:
            return folder.size(file)
        except FileNotFoundError:
            if monotonic() > until_s:
                raise OSError(
                    f"rank {rank} wrote {file}, but rank 0 does not see it: all workers must "
                    "share the folder of checkpoints"
                ) from None
            sleep(_LOOK_AGAIN_S)


def in_words(error: BaseException) -> str:
    if isinstance(error, DistrainError):
        return error.message
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
