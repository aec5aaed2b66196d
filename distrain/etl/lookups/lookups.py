"""The lookups of one run: made by tasks, opened by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distrain.etl.counting import MemoryPlan
from distrain.etl.lookups.index import write_index
from distrain.etl.lookups.mapped import MappedVocabulary
from distrain.etl.workers import TaskRunner
from distrain.storage import is_remote, open_folder


@dataclass(frozen=True)
class Lookups:
    """Where the lookup of each vocabulary lies.

    Attributes:
        folder: A folder that workers see.
        names: The vocabularies; the folder of the n-th is called after n.
    """

    folder: str
    names: tuple[str, ...]

    def folder_of(self, name: str) -> str:
        """The folder of a vocabulary's files."""
        return f"{self.folder}/{self.names.index(name):04d}"

    def vocabulary(self, categories: str, name: str) -> MappedVocabulary:
        """The vocabulary, whose values stay in its files."""
        return MappedVocabulary.open(categories, name, self.folder_of(name))


def make_lookups(
    categories: str, names: Sequence[str], runner: TaskRunner, staging: str, memory: MemoryPlan
) -> Lookups | None:
    """Make the lookups of these vocabularies in the folder `staging`.

    `None` where that is a URL: what lies in an object store cannot be mapped, so workers hold
    vocabularies in memory.
    """
    if is_remote(staging):
        return None
    lookups = Lookups(f"{staging}/lookups", tuple(names))
    open_folder(lookups.folder).make()
    tasks = [
        (categories, name, lookups.folder_of(name), memory.piece_bytes) for name in lookups.names
    ]
    runner.run("index", write_index, tasks)
    return lookups
