"""Vocabularies as files, for runs that take over what others have learnt."""

from pathlib import Path

import pyarrow as pa

from distrain.prep.vocabulary import Vocabulary
from distrain.train.data.vocabularies import VocabularyFile, _checksum


def known(folder: Path, column: str, values: list[int]) -> dict[str, VocabularyFile]:
    """A vocabulary of a column, in a folder."""
    folder.mkdir(exist_ok=True)
    counts = pa.array([1] * len(values), pa.int64())
    Vocabulary(pa.array(values, pa.int64()), counts).save(folder, column)
    checksum = _checksum(str(folder), column)
    assert checksum is not None
    return {column: VocabularyFile(str(folder), column, checksum)}
