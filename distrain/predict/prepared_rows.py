"""Opens prepared rows as the training of a saved model read them."""

from collections.abc import Sequence
from pathlib import Path

from distrain.jobs.spec.data import READING
from distrain.loader.dataset import Dataset
from distrain.models.saved_model import SavedModel


def open_prepared(
    saved: SavedModel, paths: Path | str | Sequence[str], *, need_label: bool
) -> Dataset:
    """Return the dataset of prepared rows, with the model's replacements of nulls and its folders.

    Models of earlier versions do not have these options; nulls are errors for them, and folders
    have no columns. Raises the errors of `Dataset`.
    """
    return Dataset(paths, saved.schema, need_label=need_label, **saved.about.get(READING, {}))
