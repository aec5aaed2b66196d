"""One checkpoint from the first byte to the manifest, on one rank.

Each rank writes its file and tells what is in it, or why there is none. The last one to do so
posts that all have. Rank 0 then takes what they told, and either writes the manifest or removes
what there is, and posts which of the two it was. No rank asks after each of the others.
"""

import contextlib
import json
from time import monotonic, sleep

from distrain.checkpoint.manifest import MANIFEST_FILE, Manifest
from distrain.checkpoint.retention import prune
from distrain.checkpoint.save_plan import Plan, Setting
from distrain.checkpoint.shard import Shard, ShardContent, shard_file, write_shard
from distrain.errors import DistrainError
from distrain.events import CheckpointSaved, CheckpointTrouble
from distrain.storage import Folder, open_folder

_SEEN_WITHIN_S = 5.0
_LOOK_AGAIN_S = 0.1
_WHOLE = "whole"
_FAILED = "failed"


class OneSave:
    """See the module.

    Args:
        setting: Of the writer.
        plan: What it is.
        before: What this writer wrote before it.
        content: What this rank has to write, or in words why there is nothing.
        started_s: The monotonic time at which training stopped for it.

    Attributes:
        plan: As given.
        stood_still_s: How long training stood still for it; `None` while it still does.
        whole: How it ended; `None` until then.
    """

    def __init__(
        self,
        setting: Setting,
        plan: Plan,
        before: Plan | None,
        content: ShardContent | str,
        started_s: float,
    ):
        self.plan = plan
        self.stood_still_s: float | None = None
        self.whole: bool | None = None
        self._setting = setting
        self._before = before
        self._content: ShardContent | str = content
        self._started_s = self._began_s = started_s

    def run(self) -> bool:
        """Do it all; returns whether the checkpoint is whole. Nothing is raised."""
        whole = False
        self._began_s = monotonic()
        try:
            written = self._write_own()
            first = self._setting.peers.rank == 0
            whole = self._finish(written) if first else self._follow(written)
        finally:
            self.whole = whole
        return whole

    def _write_own(self) -> Shard | str:
        """This rank's file, or in words why it is not there."""
        peers, content, self._content = self._setting.peers, self._content, ""
        if isinstance(content, str):
            return content
        try:
            folder = self._setting.place.folder(self.plan.name)
            folder.make()
            file = shard_file(peers.rank, peers.num_ranks)
            shard = write_shard(folder, file, content, self._setting.progress)
            folder.sync()
        except Exception as error:  # training goes on, whatever it is
            return in_words(error)
        return shard

    def _follow(self, written: Shard | str) -> bool:
        """On the other ranks: tell rank 0, and hear what became of it."""
        board, setting = self._setting.board, self._setting
        peers, plan = setting.peers, self.plan
        told = {"error": written} if isinstance(written, str) else {"shard": written.to_json()}
        try:
            count = board.add(plan.written_key, json.dumps({"rank": peers.rank} | told))
            if count == peers.num_ranks - 1:
                board.post(plan.all_told_key, "")
            outcome = board.read(plan.outcome_key, setting.patience_s, setting.given_up)
        except (OSError, RuntimeError):  # nobody is there to hear more about it
            return False
        return outcome == _WHOLE

    def _finish(self, written: Shard | str) -> bool:
        """On rank 0: hear from all, then make it a checkpoint or remove it."""
        told = [written, *self._hear_others()]
        problems = [f"rank {r}: {text}" for r, text in enumerate(told) if isinstance(text, str)]
        shards = [shard for shard in told if isinstance(shard, Shard)]
        if not problems:
            try:
                self._write_manifest(shards)
            except Exception as error:  # training goes on, whatever it is
                problems = [in_words(error)]
        if problems:
            self._remove()  # first, or the others might write there again
        self._announce(_FAILED if problems else _WHOLE)
        if problems:
            url = f"{self._setting.place.url}/{self.plan.name}"
            message = f"the checkpoint {url} was not written: {'; '.join(problems)}"
            self._tell_trouble(message, self.plan.step)
            return False
        self._tell_saved(sum(shard.size_bytes for shard in shards), monotonic() - self._began_s)
        self._prune()
        return True

    def _hear_others(self) -> list[Shard | str]:
        """What the other ranks wrote, or in words why not; waits until all have ended."""
        setting, plan, others = self._setting, self.plan, range(1, self._setting.peers.num_ranks)
        told: dict[int, Shard | str] = {}
        why_not = "not heard of"
        try:
            try:
                if others:
                    setting.board.read(plan.all_told_key, setting.patience_s, setting.given_up)
            except TimeoutError:
                ended = setting.given_up.is_set()
                how = "training ended" if ended else f"{setting.patience_s:.0f} s passed"
                why_not = f"not heard of before {how}"
            if others:
                told = dict(_told_of(text) for text in setting.board.take(plan.written_key))
        except (OSError, RuntimeError) as error:
            why_not = f"not heard of: {in_words(error)}"
        return [told.get(rank, why_not) for rank in others]

    def _write_manifest(self, shards: list[Shard]) -> None:
        """Make the folder a checkpoint, once all that it should hold is seen to be there."""
        plan, place = self.plan, self._setting.place
        folder = place.folder(plan.name)
        for rank, shard in enumerate(shards):
            size = _size_soon(folder, shard.file, rank)
            if size != shard.size_bytes:
                raise OSError(f"{shard.file} has {size:,} bytes, not {shard.size_bytes:,}")
        manifest = Manifest(
            plan.step,
            plan.attempt,
            plan.auc,
            plan.values,
            plan.state,
            plan.tensors,
            shards,
            place.run,
        )
        lacking = manifest.lacking()
        if lacking:
            raise OSError("no rank wrote all of " + "; ".join(lacking))
        folder.put(MANIFEST_FILE, manifest.to_bytes())
        open_folder(place.url).sync()

    def _announce(self, outcome: str) -> None:
        """Tell the others, who have all ended; they no longer need what was told before."""
        board = self._setting.board
        with contextlib.suppress(OSError, RuntimeError):
            if self._before is not None:
                board.clear(self._before.outcome_key)
            board.post(self.plan.outcome_key, outcome)

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._setting.place.folder(self.plan.name).remove(first=[MANIFEST_FILE])

    def _prune(self) -> None:
        setting, plan = self._setting, self.plan
        try:
            prune(setting.place, plan.name, setting.keep, plan.best_step)
        except OSError as error:
            self._tell_trouble(
                f"old checkpoints in {setting.place.url} were not removed: {in_words(error)}"
            )

    def _tell_saved(self, size_bytes: int, write_s: float) -> None:
        stood_still_s = self.stood_still_s
        if stood_still_s is None:
            stood_still_s = monotonic() - self._started_s
        url = self._setting.place.folder(self.plan.name).url
        self._setting.report(
            CheckpointSaved(
                0, self.plan.step, url, size_bytes, stood_still_s, write_s, self.plan.auc
            )
        )

    def _tell_trouble(self, message: str, step: int | None = None) -> None:
        self._setting.report(CheckpointTrouble(0, message, step))


def _told_of(text: str) -> tuple[int, Shard | str]:
    """Which rank told it, and what it wrote, or in words why not."""
    told = json.loads(text)
    shard = Shard.from_json(told["shard"]) if "shard" in told else str(told["error"])
    return told["rank"], shard


def _size_soon(folder: Folder, file: str, rank: int) -> int:
    """The size of a file that a rank says it wrote; a shared filesystem may show it a bit later."""
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
    """An error on one line."""
    if isinstance(error, DistrainError):
        return error.message
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
