"""The workflow of the training data, kept in a saved model's folder."""

import logging
from collections.abc import Callable
from pathlib import Path

from distrain.errors import DistrainError
from distrain.schema import Schema
from distrain.storage import RETRY_S, open_folder, open_input, whole_dir
from distrain.train.data import WORKFLOW, Vocabularies, vocabularies_in

log = logging.getLogger("distrain.rank")

_SLAB_BYTES = 1 << 24


def keep_workflow(
    vocabularies: Vocabularies, schema: Schema, model: Path, after_slab: Callable[[], None]
) -> None:
    """Copy the workflow into a model's folder, where it stays when the data goes.

    A workflow that changed since the training began is not kept; the log says so.
    """
    if not vocabularies.workflow:
        return
    kept = model / WORKFLOW
    try:
        with whole_dir(kept, replace=True) as folder:
            for part in ("", "/categories"):
                source = open_folder(vocabularies.workflow + part)
                (folder / part.lstrip("/")).mkdir(exist_ok=True)
                for name in source.files():
                    if not name.startswith("rare."):  # counts, which only an update reads
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
