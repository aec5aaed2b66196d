"""The lookups of one run: made by tasks, opened by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from distrain.etl.counting import MemoryPlan
from distrain.etl.lookups.index import open_own_index, write_index
from distrain.etl.lookups.mapped import MappedVocabulary
from distrain.etl.workers import TaskRunner
from distrain.storage import is_remote, open_folder


@dataclass(frozen=True)
class Lookups:
    """Where the lookup of each vocabulary lies."""

    folder: str | None  # A folder that workers see. `None` has each process make its own lookups
    names: tuple[str, ...]  # the vocabularies; the folder of the n-th is called after n
    range_bytes: int  # what is brought in order at once where a process makes its own

    def folder_of(self, name: str) -> str:
        return f"{self.folder}/{self.names.index(name):04d}"

    def vocabulary(self, categories: str, name: str) -> MappedVocabulary:
        if self.folder is None:
            return open_own_index(categories, name, self.range_bytes)
        place = Path(self.folder_of(name))
        return MappedVocabulary.open(categories, name, lambda file: place / file)


def make_lookups(
    categories: str, names: Sequence[str], runner: TaskRunner, staging: str, memory: MemoryPlan
) -> Lookups:
    """Make the lookups of these vocabularies in the folder `staging`.

    Where that is a URL, processes make their own: the vocabularies that they fetch for that are
    smaller than lookups in the store.
    """
    if is_remote(staging):
        return Lookups(None, tuple(names), memory.piece_bytes)
    folder = f"{staging}/lookups"
    lookups = Lookups(folder, tuple(names), memory.piece_bytes)
    open_folder(folder).make()
    tasks = [
        (categories, name, lookups.folder_of(name), memory.piece_bytes) for name in lookups.names
    ]
    runner.run("index", write_index, tasks)
    return lookups
