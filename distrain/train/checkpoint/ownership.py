"""Ownership of a directory of checkpoints by a run: a claim is a file in it.

A claim is `run-ID.json`. Each run writes its own file and lists the directory before and after it.
If two runs begin at the same time, at least one sees the other's claim. This also works in an
object store, which can neither rename files nor create them exclusively, but lists all files that
were written.

A claim has no expiry and names no process. It is valid for the run's later attempts, also on
another host. A run that was killed keeps its directory until the claim is removed. While the
directory has no checkpoint, a claim expires once the summary in the run's folder records the end of
the run; the process that submitted the run need not be alive then, nor have access to the
directory.
"""

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote, unquote

import torch

from distrain.errors import OutputError, SpecError, Unavailable
from distrain.formatting import command_line, set_option
from distrain.jobs.events import CheckpointTrouble
from distrain.jobs.run_paths import RunPaths
from distrain.models.embeddings.peers import Peers
from distrain.storage.folder import Folder, open_folder
from distrain.train.checkpoint.checkpoint_dir import CheckpointDir, attempt_and_step, numbers_of
from distrain.train.checkpoint.rank_store import fail_on_all_ranks, on_one_line

_PREFIX, _SUFFIX = "run-", ".json"

# Errors that are not temporary: they would occur again after a restart.
_LASTING = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    FileExistsError,
    IsADirectoryError,
)
_LASTING_NUMBERS = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP}
_WRITE_HINT = "Check checkpoint.dir, its permissions, and that all workers can write there."


def check_owner(directory: CheckpointDir) -> None:
    """Raise `SpecError` if another run owns the directory; write nothing.

    Raises `Unavailable` if the directory cannot be read.
    """
    try:
        _look(directory)
    except OSError as error:
        raise directory.unavailable(error) from error


def claim_dir(directory: CheckpointDir, run_dir: str) -> None:
    """Claim a directory for its run; this also checks that the directory can be written.

    If the run has a claim already, it is written again. The claim contains `run_dir`, so that the
    `SpecError` of another run can name it. If the directory has no checkpoint, claims of other runs
    that have ended are removed.

    Raises:
        SpecError: Another run owns the directory.
        OutputError: The directory cannot be written to.
        Unavailable: It cannot be read or written now, for a possibly temporary reason.
    """
    assert directory.run is not None
    name = _claim_file(directory.run)
    claim = {"run": directory.run, "run_dir": run_dir}
    with _not_written(directory.url):
        _look(directory)
        folder = open_folder(directory.url)
        had_claim = name in folder.files()
        folder.make()
        folder.put(name, (json.dumps(claim) + "\n").encode())
        claims = _claims(folder)
        others = [run for run in claims if run != directory.run]
        if not any(numbers_of(name) for name in folder.folders()):
            over = {run for run in others if _is_over(folder, run)}
            for run in sorted(over):
                with contextlib.suppress(OSError):  # another run may have removed it
                    folder.delete(_claim_file(run))
            others = [run for run in others if run not in over]
        if not others:
            return
        if not had_claim:
            with contextlib.suppress(OSError):
                folder.delete(name)
        _refuse(directory, folder, claims)


def release_dir(directory: CheckpointDir) -> None:
    """Remove the claim of a run that has ended permanently, if the directory has no checkpoint.

    Raises `OSError` if the directory cannot be read or written.
    """
    assert directory.run is not None
    folder = open_folder(directory.url)
    if not any(numbers_of(name) for name in folder.folders()):
        folder.delete(_claim_file(directory.run))


def claim_on_all_ranks(
    directory: CheckpointDir,
    run_dir: str,
    peers: Peers,
    device: torch.device,
    report: Callable[[CheckpointTrouble], None] | None = None,
) -> None:
    """Claim a directory on rank 0; a collective operation.

    Raises the errors of `claim_dir` on every rank. With `report`, a directory that cannot be read
    or written is not an error: rank 0 reports it.
    """
    with fail_on_all_ranks(peers, device, directory.url):
        if peers.rank != 0:
            return
        try:
            claim_dir(directory, run_dir)
        except (OutputError, Unavailable) as error:
            if report is None:
                raise
            report(CheckpointTrouble(0, on_one_line(error)))


def _look(directory: CheckpointDir) -> None:
    folder = open_folder(directory.url)
    _refuse(directory, folder, _claims(folder))


def _claim_file(run: str) -> str:
    return f"{_PREFIX}{quote(run, safe='')}{_SUFFIX}"


def _claims(folder: Folder) -> list[str]:
    return [
        unquote(name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
        for name in folder.files()
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    ]


def _refuse(directory: CheckpointDir, folder: Folder, claims: list[str]) -> None:
    """Raise `SpecError` if another run has a checkpoint, or a claim that counts, in the directory.

    `claims` are the runs with a claim. Without any checkpoint, claims of ended runs do not count.
    """
    survey = directory.survey()
    claimed = sorted(run for run in claims if run != directory.run)
    if not any(numbers_of(name) for name in folder.folders()):
        claimed = [run for run in claimed if not _is_over(folder, run)]
    saved = {run for run in survey.others.values() if run is not None}
    runs = sorted({*claimed, *saved})
    if not runs and not survey.others:
        return
    newest = max(survey.others, key=attempt_and_step, default=None)
    where: dict[str, object] = {"location": directory.url}
    if directory.run is not None:
        where["this run"] = directory.run
    if newest is not None:
        where["its newest checkpoint"] = f"{folder.url}/{newest}"
    if not runs:
        raise SpecError(
            "checkpoint.dir contains checkpoints that were not written by a job",
            where=where,
            hint=_hint(directory, None, newest),
        )
    whose = ", ".join(runs)
    whose = f"the run {whose}" if len(runs) == 1 else f"the runs {whose}"
    claim_file = _claim_file(runs[0])
    if runs[0] in claimed:
        where["its claim"] = f"{folder.url}/{claim_file}"
    raise SpecError(
        f"checkpoint.dir belongs to {whose}"
        + ("" if newest else ", which has written no checkpoint yet"),
        where=where,
        hint=_hint(directory, _run_dir(folder, claim_file), newest),
    )


def _is_over(folder: Folder, run: str) -> bool:
    """Return True if the run of a claim has ended, and was not resumed since.

    The summary and the attempts in the run's folder show this. Returns False if that folder is
    remote or cannot be read.
    """
    run_dir = _run_dir(folder, _claim_file(run))
    if not run_dir or "://" in run_dir:
        return False
    paths = RunPaths(Path(run_dir))
    try:
        run_file = json.loads(paths.run.read_bytes())
        summary = json.loads(paths.summary.read_bytes())
        has_resumed = max(paths.attempts(), default=0) > summary["attempts"]
        return run_file["job_id"] == run and not has_resumed
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _hint(directory: CheckpointDir, run_dir: str | None, newest: str | None) -> str:
    url = directory.url.rstrip("/")
    own_folder = set_option("checkpoint.dir", f"{url}/{{run_id}}")
    resume = command_line("train", "--resume", run_dir or "ITS_RUN_DIRECTORY")
    ways = [f"Continue that run: {resume}."]
    if newest:
        ways.append(
            "Or start a new run from its weights: "
            f"{set_option('train.init_from', f'{url}/{newest}')} {own_folder}."
        )
    ways.append(f"Or give this run a folder of its own: {own_folder}.")
    if not newest:
        ways.append("If that run has ended, you can remove its claim.")
    return " ".join(ways)


def _run_dir(folder: Folder, claim_file: str) -> str | None:
    try:
        claim = json.loads(folder.read(claim_file))
        return str(claim["run_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _not_written(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        lasting = isinstance(error, _LASTING) or error.errno in _LASTING_NUMBERS
        raise (OutputError if lasting else Unavailable)(
            f"checkpoints cannot be written: {error}", where={"location": url}, hint=_WRITE_HINT
        ) from error
