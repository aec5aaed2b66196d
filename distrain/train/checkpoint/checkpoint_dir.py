"""The directory of a run's checkpoints, a folder or URL: lists, reads and removes checkpoints."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrain.errors import DataError, Unavailable
from distrain.storage.folder import Folder, open_folder
from distrain.train.checkpoint.manifest import DAMAGED_FILE, MANIFEST_FILE, Damaged, read_document

_NAME = re.compile(r"step-([0-9]+)-a([0-9]+)")


@dataclass(frozen=True)
class CheckpointEntry:
    """A checkpoint with a valid manifest."""

    name: str  # the folder's name in the directory
    url: str
    step: int  # training steps in it
    attempt: int  # the attempt that wrote it
    values: Mapping[str, Any]  # `Manifest.values`
    size_bytes: int  # of all its files except the manifest
    auc: float | None = None  # of the validation rows at this step, if they were scored
    run: str | None = None  # the run that wrote it; `None` if unknown


@dataclass(frozen=True)
class Survey:
    """All checkpoints of a directory: usable ones, damaged ones, and those of other runs."""

    whole: list[CheckpointEntry] = field(default_factory=list)  # ordered like `CheckpointDir.list`
    # the reasons why checkpoints are unusable, by name; `foreign` has those in unsupported formats
    broken: dict[str, str] = field(default_factory=dict)
    foreign: dict[str, str] = field(default_factory=dict)
    # for checkpoints of other runs: the run that wrote each, by checkpoint name; `None` if unknown
    others: dict[str, str | None] = field(default_factory=dict)


class CheckpointDir:
    """Directory of checkpoints: a local folder, or a URL of any filesystem that fsspec supports.

    The directory is created with the first checkpoint. The object can be pickled. Checkpoints of
    other runs than `run` are neither listed nor removed; `None` accepts every run.
    """

    def __init__(self, url: str, run: str | None = None):
        self.url = url
        self.run = run
        self.damaged: list[str] = []  # messages about the checkpoints that `list` could not use

    def list(self) -> list[CheckpointEntry]:
        """Return the complete checkpoints, in the order in which a run would resume from them.

        The order is by attempt, then by step, the latest first. A later attempt comes first even if
        its steps are lower. Only manifests are checked; other missing or damaged files are detected
        on loading. The attribute `damaged` is set to messages about unusable checkpoints. Returns
        an empty list for a missing directory. Raises `Unavailable` if the directory could not be
        read.
        """
        try:
            survey = self.survey()
        except OSError as error:
            raise self.unavailable(error) from error
        self.damaged = [*survey.broken.values(), *survey.foreign.values()]
        return survey.whole

    def unavailable(self, error: OSError) -> Unavailable:
        return Unavailable(
            f"the checkpoints could not be listed: {error}",
            where={"location": self.url},
            hint="Check checkpoint.dir, its permissions, and that its server answers.",
        )

    def owns(self, run: str | None) -> bool:
        return self.run is None or run == self.run

    def read_manifest(self, name: str) -> dict[str, Any]:
        """Return a manifest as JSON values.

        Raises `Damaged` if it is missing or damaged, `Unavailable` if it cannot be read, and
        `DataError` for an unsupported format.
        """
        folder = self.folder(name)
        try:
            content = folder.read(MANIFEST_FILE)
        except FileNotFoundError:
            raise Damaged("no such checkpoint", where={"path": folder.url}) from None
        except OSError as error:
            raise Unavailable(f"cannot be read: {error}", where={"path": folder.url}) from error
        return read_document(content, folder.url)

    def folder(self, name: str) -> Folder:
        return open_folder(self.url).sub(name)

    def survey(self) -> Survey:
        """Return all checkpoints, including unusable ones and those of other runs.

        Raises `OSError` if the directory cannot be read.
        """
        result = Survey()
        for name in open_folder(self.url).folders():
            numbers = numbers_of(name)
            if numbers:
                self._look_at(name, numbers, result)
        result.whole.sort(key=lambda entry: (entry.attempt, entry.step), reverse=True)
        return result

    def _look_at(self, name: str, numbers: tuple[int, int], survey: Survey) -> None:
        folder = self.folder(name)
        try:
            content = folder.read(MANIFEST_FILE)
        except FileNotFoundError:
            survey.broken[name] = _without_manifest(folder)
            return
        try:
            document = read_document(content, folder.url)
        except DataError as error:
            group = survey.broken if isinstance(error, Damaged) else survey.foreign
            group[name] = f"the checkpoint {folder.url} cannot be used: {error.message}"
            return
        run = document.get("run")
        if not self.owns(run):
            survey.others[name] = run
            return
        if (document["step"], document["attempt"]) != numbers:
            survey.broken[name] = (
                f"the checkpoint {folder.url} cannot be used: its manifest is that of step "
                f"{document['step']}, attempt {document['attempt']}"
            )
            return
        survey.whole.append(entry_of(name, folder.url, document))


def entry_of(name: str, url: str, document: Mapping[str, Any]) -> CheckpointEntry:
    step, attempt = numbers_of(name) or (document["step"], document["attempt"])
    size_bytes, auc = document["size_bytes"], document["auc"]
    return CheckpointEntry(
        name, url, step, attempt, document["values"], size_bytes, auc, document.get("run")
    )


def name_of(step: int, attempt: int) -> str:
    """Return the name of a checkpoint's folder.

    >>> name_of(500, 3)
    'step-0000000500-a3'
    """
    return f"step-{step:010d}-a{attempt}"


def numbers_of(name: str) -> tuple[int, int] | None:
    """Return step and attempt from a folder's name; `None` if it is not a checkpoint's name.

    >>> numbers_of("step-0000000500-a3"), numbers_of("model")
    ((500, 3), None)
    """
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def _without_manifest(folder: Folder) -> str:
    try:
        folder.size(DAMAGED_FILE)
    except OSError:
        return f"the checkpoint {folder.url} was never finished"
    return f"the checkpoint {folder.url} was set aside as damaged"


def expendable(
    entries: Sequence[CheckpointEntry], keep: int, best_step: int | None
) -> list[CheckpointEntry]:
    """Return the checkpoints to remove: all except the `keep` newest and that of `best_step`.

    `entries` are in the order of `CheckpointDir.list`. `best_step` is `None` if there is no best
    step.
    """
    kept = [*entries[:keep], entry_of_step(entries, best_step)]
    return [entry for entry in entries if entry not in kept]


def entry_of_step(entries: Sequence[CheckpointEntry], step: int | None) -> CheckpointEntry | None:
    """Return the checkpoint of a step; `None` if there is none.

    `entries` are in the order of `CheckpointDir.list`. If several attempts saved the step, return
    the latest attempt's checkpoint.
    """
    return next((entry for entry in entries if entry.step == step), None)


def leftovers(survey: Survey, current: str) -> list[str]:
    """Return the names of damaged or unfinished checkpoints that no rank can still be writing.

    These are older than the checkpoint `current`; ranks may be writing newer ones. Checkpoints in
    unsupported formats are not returned. The result is empty if the directory has checkpoints of
    other runs, because an unfinished checkpoint may belong to one of these runs.
    """
    if survey.others:  # a folder without a manifest may belong to another run
        return []
    return [name for name in survey.broken if attempt_and_step(name) < attempt_and_step(current)]


def attempt_and_step(name: str) -> tuple[int, int]:
    """Return attempt and step in a checkpoint's name, by which checkpoints are sorted."""
    step, attempt = numbers_of(name) or (0, 0)
    return attempt, step


def prune(directory: CheckpointDir, current: str, keep: int, best_step: int | None) -> None:
    """Remove all checkpoints except the `keep` newest and that of `best_step`.

    Also removes damaged and unfinished checkpoints (`leftovers`). Call it when the checkpoint
    `current` is complete. May raise `OSError`.
    """
    survey = directory.survey()
    names = [entry.name for entry in expendable(survey.whole, keep, best_step)]
    for name in [*names, *leftovers(survey, current)]:
        # Without its manifest it is not a checkpoint, even if the removal fails later.
        directory.folder(name).remove(first=[MANIFEST_FILE])
