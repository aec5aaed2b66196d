"""A checkpoint's weights alone, read into a model: no optimizer, no place in the data."""

from collections.abc import Callable, Mapping
from typing import Any

from distrain.checkpoint.manifest import Damaged, from_document
from distrain.checkpoint.place import CheckpointPlace
from distrain.checkpoint.reading import ShardReading
from distrain.checkpoint.state import facts_of
from distrain.embeddings import Peers
from distrain.errors import DataError
from distrain.models import ClickModel
from distrain.models.saved import model_tensors


class WeightsReading:
    """The reading of a checkpoint's weights into a model by one rank; no collective operation.

    Args:
        place: Where the checkpoint lies.
        name: Of its folder.
        model: Takes the weights, of the shapes that were saved; each rank the rows that it holds.
        peers: This rank among the others.
        after_slab: Called after each slab that was read.

    Raises:
        Damaged, Unavailable: Its manifest cannot be used.
        DataError: The model has other tensors.
    """

    def __init__(
        self,
        place: CheckpointPlace,
        name: str,
        model: ClickModel,
        peers: Peers,
        after_slab: Callable[[], None] = lambda: None,
    ):
        self._folder = place.folder(name)
        self._manifest = from_document(place.read_manifest(name), self._folder.url)
        tensors: dict[str, Any] = dict(model_tensors(model))
        _check_fits(self._manifest.tensors, facts_of(tensors), self._folder.url)
        # Of what belongs to the ranks that saved it nothing is read.
        self._reading = ShardReading(
            self._folder, self._manifest, tensors, peers.rank, after_slab, owned=()
        )

    def check(self) -> None:
        """Look at the files that are needed; nothing is changed.

        Raises:
            Damaged: One is missing, of another length, or its header is damaged; or rows are
                missing.
            OSError: One could not be read.
        """
        lacking = self._manifest.lacking()
        if lacking:
            raise Damaged("not whole: " + "; ".join(lacking), where={"path": self._folder.url})
        self._reading.check()

    def run(self) -> None:
        """Read them.

        Raises:
            Damaged: Some bytes are not those that were written; some rows may have been read.
            OSError: A file could not be read.
        """
        self._reading.run()


def _check_fits(saved: Mapping[str, Any], own: Mapping[str, Any], url: str) -> None:
    saved = {name: f for name, f in saved.items() if name.startswith(("dense.", "embeddings."))}
    problems = [
        f"{name} is {saved.get(name, 'missing')}, the model needs {own.get(name, 'no such tensor')}"
        for name in sorted({*saved, *own})
        if saved.get(name) != own.get(name)
    ]
    if problems:
        raise DataError(
            "the checkpoint's weights do not fit the model:\n  " + "\n  ".join(problems),
            where={"path": url},
        )
