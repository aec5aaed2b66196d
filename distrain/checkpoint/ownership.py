"""Whose a place of checkpoints is: one run's, whose claim on it is a file beside them.

A claim is `run-ID.json`. Each run writes a file of its own, never another's, and looks at the place
before and after it: of two runs that begin at once at least one sees the other's, also in an object
store, which can neither rename nor create exclusively but lists what was written. A claim has no
age and names no process. It is as good for the run's later attempts, and for those on another host,
and a run that was killed keeps its place until somebody removes it.
"""

import contextlib
import errno
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote, unquote

import torch

from distrain.checkpoint.agreement import on_one_line, together
from distrain.checkpoint.place import CheckpointPlace, numbers_of
from distrain.embeddings import Peers
from distrain.errors import OutputError, SpecError, Unavailable
from distrain.events import CheckpointTrouble
from distrain.storage import Folder, open_folder

_PREFIX, _SUFFIX = "run-", ".json"

# What does not pass by itself: a restart would meet it again.
_LASTING = (
    PermissionError,
    FileNotFoundError,
    NotADirectoryError,
    FileExistsError,
    IsADirectoryError,
)
_LASTING_NUMBERS = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENAMETOOLONG, errno.ELOOP}
_WRITE_HINT = "Check checkpoint.dir, its permissions, and that all workers can write there."


def check_owner(place: CheckpointPlace) -> None:
    """Make sure that nobody but the place's run has checkpoints there, or means to write some.

    Nothing is written, so that this can be asked before a job is submitted.

    Raises:
        SpecError: Another run has the place.
        Unavailable: It could not be looked at.
    """
    try:
        _look(place)
    except OSError as error:
        raise place.unavailable(error) from error


def claim_place(place: CheckpointPlace, run_dir: str) -> None:
    """Take a place for its run, which shows at once whether it can be written.

    A claim that the run has already is written again.

    Args:
        place: Which, and whose.
        run_dir: The run's directory, for whoever is refused because of this claim.

    Raises:
        SpecError: Another run has the place, or takes it at this moment.
        OutputError: It cannot be written.
        Unavailable: It cannot be written now; another time it may be.
    """
    assert place.run is not None
    name = _claim_file(place.run)
    claim = {"run": place.run, "run_dir": run_dir}
    with _not_written(place.url):
        _look(place)
        folder = open_folder(place.url)
        known = name in folder.files()
        folder.make()
        folder.put(name, (json.dumps(claim) + "\n").encode())
        claims = _claims(folder)
        if all(run == place.run for run in claims):
            return
        if not known:
            with contextlib.suppress(OSError):
                folder.delete(name)
        _refuse(place, folder, claims)


def release_place(place: CheckpointPlace) -> None:
    """Give a place away whose run has ended for good and has no checkpoint there.

    Raises:
        OSError: It could not be looked at, or the claim not be removed.
    """
    assert place.run is not None
    folder = open_folder(place.url)
    if not any(numbers_of(name) for name in folder.folders()):
        folder.delete(_claim_file(place.run))


def claim_together(
    place: CheckpointPlace,
    run_dir: str,
    peers: Peers,
    device: torch.device,
    report: Callable[[CheckpointTrouble], None] | None = None,
) -> None:
    """Have rank 0 claim a place; a collective operation.

    Args:
        place: Which, and whose.
        run_dir: The run's directory.
        peers: This rank among the others.
        device: Where their backend wants tensors.
        report: Gets, on rank 0, that the place cannot be written, which then is no error.

    Raises:
        SpecError, OutputError, Unavailable: As `claim_place`, the same on every rank.
    """
    with together(peers, device, place.url):
        if peers.rank != 0:
            return
        try:
            claim_place(place, run_dir)
        except (OutputError, Unavailable) as error:
            if report is None:
                raise
            report(CheckpointTrouble(0, on_one_line(error)))


def _look(place: CheckpointPlace) -> None:
    folder = open_folder(place.url)
    _refuse(place, folder, _claims(folder))


def _claim_file(run: str) -> str:
    return f"{_PREFIX}{quote(run, safe='')}{_SUFFIX}"


def _claims(folder: Folder) -> list[str]:
    """The ids of the runs that claim a place."""
    return [
        unquote(name.removeprefix(_PREFIX).removesuffix(_SUFFIX))
        for name in folder.files()
        if name.startswith(_PREFIX) and name.endswith(_SUFFIX)
    ]


def _refuse(place: CheckpointPlace, folder: Folder, claims: list[str]) -> None:
    """Raise if anybody else is there."""
    found = place.survey()
    claimed = sorted(run for run in claims if run != place.run)
    saved = {run for run in found.others.values() if run is not None}
    runs = sorted({*claimed, *saved})
    if not runs and not found.others:
        return
    newest = max(found.others, key=_attempt_and_step, default=None)
    where: dict[str, object] = {"place": place.url}
    if place.run is not None:
        where["this run"] = place.run
    if newest is not None:
        where["its newest checkpoint"] = f"{folder.url}/{newest}"
    if not runs:
        raise SpecError(
            "checkpoint.dir holds checkpoints of another run, written by an older version of "
            "distrain, which did not record whose they are",
            where=where,
            hint=_hint(place, None, newest),
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
        hint=_hint(place, _run_dir(folder, claim_file), newest),
    )


def _attempt_and_step(name: str) -> tuple[int, int]:
    step, attempt = numbers_of(name) or (0, 0)
    return attempt, step


def _hint(place: CheckpointPlace, run_dir: str | None, newest: str | None) -> str:
    place_of_own = f"checkpoint.dir={place.url.rstrip('/')}/{{run_id}}"
    ways = [f"Go on with that run: distrain train --resume {run_dir or 'ITS_RUN_DIRECTORY'}."]
    if newest:
        ways.append(
            "Or start a new run from its weights: "
            f"--set train.init_from={place.url.rstrip('/')}/{newest} --set '{place_of_own}'."
        )
        ways.append(f"Or give this run a place of its own: --set '{place_of_own}'.")
    else:
        ways.append(f"Or give this run a place of its own: --set '{place_of_own}'.")
        ways.append("If that run is over, its claim may be removed.")
    return " ".join(ways)


def _run_dir(folder: Folder, claim_file: str) -> str | None:
    """What a claim says of its run's directory, if it can be read."""
    try:
        told = json.loads(folder.read(claim_file))
        return str(told["run_dir"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


@contextlib.contextmanager
def _not_written(url: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        lasting = isinstance(error, _LASTING) or error.errno in _LASTING_NUMBERS
        raise (OutputError if lasting else Unavailable)(
            f"checkpoints cannot be written: {error}", where={"place": url}, hint=_WRITE_HINT
        ) from error
