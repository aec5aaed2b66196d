"""Which files say what a table's ids mean, and how the ids of one vocabulary become another's.

`distrain prep` writes a folder `workflow/` beside the schema, with a vocabulary for each
categorical column. Saved models and checkpoints name that folder and the files' checksums: ids of
equal checksums mean the same, and a file that has changed since is noticed.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from distrain.errors import DataError
from distrain.schema import Schema
from distrain.spec import DataSpec
from distrain.train.data import find_data_schema
from distrain.vocabulary import FIRST_OOV_ID, Vocabulary, is_text

log = logging.getLogger("distrain.rank")

_READ_BYTES = 1 << 24


@dataclass(frozen=True)
class VocabularyFile:
    """The vocabulary of a column, on disk.

    Attributes:
        name: What its files are called after: the column, or its domain.
    """

    folder: str
    name: str
    xxh3_64: str

    @property
    def is_unchanged(self) -> bool:
        """Whether the files are there, with this checksum."""
        return _checksum(Path(self.folder), self.name) == self.xxh3_64

    def read(self) -> Vocabulary:
        """The vocabulary; raises `DataError` if a file is missing or damaged."""
        return Vocabulary.load(Path(self.folder), self.name)


@dataclass(frozen=True)
class Vocabularies:
    """The vocabularies of a table's categorical columns, of those that are known."""

    files: Mapping[str, VocabularyFile]

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            column: [file.folder, file.name, file.xxh3_64] for column, file in self.files.items()
        }

    @classmethod
    def from_json(cls, document: object) -> "Vocabularies":
        """The inverse of `to_json`; of anything else, that nothing is known."""
        try:
            items = dict(document or {}).items()  # type: ignore[call-overload]
            return cls({str(c): VocabularyFile(*map(str, file)) for c, file in items})
        except (TypeError, ValueError):
            return cls({})


def find_vocabularies(data: DataSpec, schema: Schema) -> Vocabularies:
    """What lies beside a job's schema; files that cannot be read count as unknown.

    Their bytes are read, once in a training.
    """
    path = find_data_schema(data)
    if path is None or isinstance(path, str):  # of a URL nothing is known
        return Vocabularies({})
    folder = path.absolute().parent / "workflow" / "categories"
    checksums: dict[str, str | None] = {}
    files = {}
    for column in schema.categorical:
        name = column.domain
        if name not in checksums:
            checksums[name] = _checksum(folder, name)
        if (checksum := checksums[name]) is not None:
            files[column.name] = VocabularyFile(str(folder), name, checksum)
    return Vocabularies(files)


def new_ids(old: Vocabulary, new: Vocabulary) -> np.ndarray[Any, np.dtype[np.int32]]:
    """For each id of a vocabulary the id of the same thing in another.

    Values are looked up as they are. Padding and missing values keep their ids, and so do the
    out-of-vocabulary ids where both have as many: then each value falls into the same one.

    Returns:
        `[old.cardinality]`, int32; -1 for what the new one does not know.

    Raises:
        DataError: One holds integers and the other strings.
    """
    was, now = ("strings" if is_text(v.values.type) else "integers" for v in (old, new))
    if was != now:
        raise DataError(f"its values were {was} and are {now}")
    ids = np.full(old.cardinality, -1, np.int32)
    same_buckets = old.num_oov == new.num_oov
    kept = old.first_value_id if same_buckets else FIRST_OOV_ID
    ids[:kept] = np.arange(kept)
    found = new.encode(old.values)
    ids[old.first_value_id :] = np.where(found >= new.first_value_id, found, -1)
    return ids


def _checksum(folder: Path, name: str) -> str | None:
    """The checksum of both files of a vocabulary; `None` if they are not there."""
    hashed = xxhash.xxh3_64()
    try:
        for kind in ("meta", "unique"):
            with open(folder / f"{kind}.{name}.parquet", "rb") as file:
                while content := file.read(_READ_BYTES):
                    hashed.update(content)
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the vocabulary of %s in %s cannot be read: %s", name, folder, error)
        return None
    return hashed.hexdigest()
