"""A saved model on its way to the object store in which its run directory lies."""

import mmap
from collections.abc import Callable
from pathlib import Path

from distrain.errors import OutputError
from distrain.models import MODEL_FILE
from distrain.run_paths import RunPaths
from distrain.storage import Folder, first_line, open_folder, with_retries

RETRY_S = 600.0
"""How long a store that does not answer is tried: the training is done, and would be lost."""

_SLAB_BYTES = 64 * 2**20


def put_model(paths: RunPaths, after_slab: Callable[[], None] = lambda: None) -> None:
    """Put a model from this rank's folder into the run directory in a store.

    The file that says what the model is comes last, and goes first if an earlier one is there.
    """
    url = paths.place_of(paths.model)
    try:
        target = open_folder(url)
        with_retries(lambda: _put(paths.model, target, after_slab), {"place": url}, RETRY_S)
    except OSError as error:
        raise OutputError(
            f"the model cannot be written: {first_line(error)}",
            where={"place": url},
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
        for first in range(0, len(whole), _SLAB_BYTES):
            with whole[first : first + _SLAB_BYTES] as slab:
                writer.write(slab)
            after_slab()
