"""A saved vocabulary that is not read into memory: gives its size and copies its files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import pyarrow as pa

from distrain.errors import DataError
from distrain.prep.vocabulary import Vocabulary, copy_file, read_footer, read_meta


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedVocabulary(Vocabulary):
    """A vocabulary whose values stay in its files; only the metadata is read.

    `values` and `counts` are empty, and looking up a value raises a `RuntimeError`.
    """

    folder: str
    name: str
    num_values: int  # the number of values in the file

    @classmethod
    def look_at(cls, folder: str, name: str) -> SavedVocabulary:
        """Return the vocabulary of the column or domain `name`; reads only metadata and a footer.

        Raises a `DataError` if its files cannot be read or do not belong together, and
        `Unavailable` if the storage does not answer.
        """
        meta = read_meta(folder, name)
        schema, num_values = read_footer(folder, name)
        if num_values != meta["unique"]["num_indices"]:
            raise DataError(
                f"{num_values} values, but the meta file says {meta['unique']['num_indices']}",
                where={"file": f"{folder}/unique.{name}.parquet"},
                hint="Files of two workflows were mixed; save the workflow again.",
            )
        return cls(
            pa.array([], schema.field(name).type),
            pa.array([], pa.int64()),
            meta["oov"]["num_indices"],
            meta["null"]["num_observed"],
            meta["oov"]["num_observed"],
            folder=folder,
            name=name,
            num_values=num_values,
        )

    @property
    def cardinality(self) -> int:
        return self.first_value_id + self.num_values

    def places_of(self, distinct: pa.Array) -> NoReturn:
        """Raise a `RuntimeError`, since the values were not read."""
        raise RuntimeError(
            f"the vocabulary {self.name} was not read; load it before looking up values"
        )

    def save(self, folder: Path | str, column: str) -> None:
        """Copy the vocabulary's files to another folder or URL.

        Raises:
            DataError: A file cannot be read, or another process has replaced the vocabulary since
                `look_at`.
            OutputError: A copy cannot be written.
            Unavailable: The storage does not answer.
        """
        for file in (f"unique.{column}.parquet", f"meta.{column}.parquet"):
            copy_file(f"{self.folder}/{file}", f"{folder}/{file}")
        if SavedVocabulary.look_at(str(folder), column).cardinality != self.cardinality:
            raise DataError(
                "the saved workflow was replaced while it was in use",
                where={"file": f"{self.folder}/unique.{column}.parquet"},
                hint="Start again when no other process writes it.",
            )
