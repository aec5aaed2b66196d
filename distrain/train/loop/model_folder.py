"""Adds the workflow of a model's data to its folder, and copies the folder to the run's store."""

import logging
import mmap
from collections.abc import Callable
from pathlib import Path

from distrain.errors import DistrainError, OutputError
from distrain.jobs.run_paths import RunPaths
from distrain.models.saved_model import MODEL_FILE
from distrain.schema.schema import Schema
from distrain.storage.folder import Folder, open_folder
from distrain.storage.inputs import open_input
from distrain.storage.outputs import atomic_dir
from distrain.storage.retrying import RETRY_S, first_line, with_retries
from distrain.train.data.vocabularies import WORKFLOW, Vocabularies, vocabularies_in

log = logging.getLogger("distrain.rank")

STORE_RETRY_S = 600.0
"""Seconds of retries for a store that does not answer: the training is done, and would be lost."""

_SLAB_BYTES = 1 << 24
_PART_BYTES = 64 * 2**20


def keep_workflow(
    vocabularies: Vocabularies, schema: Schema, model: Path, after_slab: Callable[[], None]
) -> None:
    """Copy the workflow of the vocabularies into the folder `model`.

    Files that only an update of the workflow needs are left out. If the workflow cannot be read, or
    has changed since `vocabularies` was made, the folder gets no copy, and a warning is logged.
    Does nothing if the workflow is unknown.
    """
    if not vocabularies.workflow:
        return
    kept = model / WORKFLOW
    try:
        with atomic_dir(kept, replace=True) as folder:
            for part in ("", "/categories"):
                source = open_folder(vocabularies.workflow + part)
                (folder / part.lstrip("/")).mkdir(exist_ok=True)
                for name in source.files():
                    if not name.startswith("rare."):  # only an update of the workflow needs these
                        to = folder / part.lstrip("/") / name
                        _copy(f"{source.url}/{name}", to, after_slab)
            found = vocabularies_in(str(folder), schema)
            if found != vocabularies.kept_in(str(folder)):
                raise _Changed
    except _Changed:
        log.warning("the workflow in %s has changed and is not kept", vocabularies.workflow)
    except (OSError, DistrainError) as error:
        log.warning("the workflow in %s is not kept: %s", vocabularies.workflow, error)


class _Changed(Exception):
    pass


def _copy(source: str, to: Path, after_slab: Callable[[], None]) -> None:
    with open_input(source, retry_s=RETRY_S) as handle, to.open("wb") as copy:
        while content := handle.read(_SLAB_BYTES):
            copy.write(content)
            after_slab()


def put_model(paths: RunPaths, model: Path, after_slab: Callable[[], None] = lambda: None) -> None:
    """Copy a model's folder to the run's store; `model.json`, which completes it, is written last.

    Raises `Unavailable` if the store does not answer for `STORE_RETRY_S`, and `OutputError` for its
    other errors.
    """
    url = paths.place_of(model)
    try:
        target = open_folder(url)
        with_retries(lambda: _put(model, target, after_slab), {"location": url}, STORE_RETRY_S)
    except OSError as error:
        raise OutputError(
            f"the model cannot be written: {first_line(error)}",
            where={"location": url},
            hint="Check the bucket, and the credentials of the workers.",
        ) from error


def _put(source: Path, target: Folder, after_slab: Callable[[], None]) -> None:
    target.delete(MODEL_FILE)
    for path in sorted(source.rglob("*"), key=lambda path: path.name == MODEL_FILE):
        if path.is_file():
            folder = path.relative_to(source).parent.as_posix()
            _put_file(path, target if folder == "." else target.sub(folder), after_slab)


def _put_file(path: Path, target: Folder, after_slab: Callable[[], None]) -> None:
    if not path.stat().st_size:
        target.put(path.name, b"")
        return
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
        memoryview(content) as whole,
        target.writer(path.name) as writer,
    ):
        for first in range(0, len(whole), _PART_BYTES):
            with whole[first : first + _PART_BYTES] as slab:
                writer.write(slab)
            after_slab()
