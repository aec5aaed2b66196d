"""The file that makes a folder a checkpoint: what is in it, checksums included; written last."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from distrain.checkpoint.shard import RANK_PREFIX, Shard, num_rows
from distrain.checkpoint.shard_check import check_shards, check_whole_number
from distrain.errors import DataError
from distrain.version import __version__

FORMAT = 1
MANIFEST_FILE = "manifest.json"
DAMAGED_FILE = "manifest.damaged.json"
"""What the manifest of a checkpoint is called that turned out to be damaged."""


class Damaged(DataError):
    """Bytes of a checkpoint that are not those that were written, or that are missing."""


TensorFacts = tuple[str, tuple[int, ...]]
"""dtype, as safetensors calls it, and shape."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is and holds.

    Attributes:
        step: Steps of training.
        attempt: Of the job that wrote it.
        auc: Of the validation rows at this step, if they were scored.
        values: The JSON values that the training handed in.
        state: What a `TrainingState` says of itself beside its tensors.
        tensors: Of each tensor dtype and shape.
        shards: The files, by the rank that wrote them.
        run: The run that wrote it; `None` if it does not say.
    """

    step: int
    attempt: int
    auc: float | None
    values: Mapping[str, Any]
    state: Mapping[str, Any]
    tensors: Mapping[str, TensorFacts]
    shards: Sequence[Shard]
    run: str | None = None

    @property
    def size_bytes(self) -> int:
        """Of all files but the manifest itself."""
        return sum(shard.size_bytes for shard in self.shards)

    def lacking(self) -> list[str]:
        """What rows of which tensors no file has, in words; every row must be in one of them."""
        found = dict.fromkeys(self.tensors, 0)
        for shard in self.shards:
            for piece in shard.pieces:
                if not piece.name.startswith(RANK_PREFIX):
                    found[piece.name] = found.get(piece.name, 0) + piece.rows.count
        return [
            f"{name}: {found[name]} of {num_rows(shape)} rows"
            for name, (_, shape) in self.tensors.items()
            if math.prod(shape) and found[name] != num_rows(shape)
        ]

    def to_bytes(self) -> bytes:
        """The file."""
        content = {
            "distrain": __version__,
            "run": self.run,
            "step": self.step,
            "attempt": self.attempt,
            "auc": self.auc,
            "size_bytes": self.size_bytes,
            "values": self.values,
            "state": self.state,
            "tensors": {
                name: [dtype, list(shape)] for name, (dtype, shape) in self.tensors.items()
            },
            "files": [shard.to_json() for shard in self.shards],
        }
        return _rendered(content)


def read_document(content: bytes, url: str) -> dict[str, Any]:
    """What a manifest says, as JSON values.

    Args:
        content: The file.
        url: Of the checkpoint, for messages.

    Raises:
        Damaged: It is damaged, or no manifest.
        DataError: It is of another format.
    """
    where = {"file": f"{url}/{MANIFEST_FILE}"}
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"damaged: {error}", where=where) from None
    if not isinstance(document, dict) or not {"format", "xxh3_64", "content"} <= set(document):
        raise Damaged("damaged: not the manifest of a checkpoint", where=where)
    # Everything counts, also what JSON would pass over.
    if document["format"] == FORMAT and _rendered(document["content"]) != content:
        raise Damaged("damaged: the checksum is wrong", where=where)
    if document["format"] != FORMAT:
        raise DataError(
            f"saved in format {document['format']!r}; this version of distrain reads {FORMAT}",
            where=where,
            hint="Use the version of distrain that wrote it.",
        )
    inner: dict[str, Any] = document["content"]
    try:
        _check_head(inner)
    except (TypeError, KeyError) as error:
        raise _impossible(error, url) from None
    return inner


def from_document(content: Mapping[str, Any], url: str = "") -> Manifest:
    """A manifest from its JSON values.

    Nothing in it is believed: what it says of files is compared with itself here, and with the
    files before memory is taken for what they hold.

    Args:
        content: What `read_document` gave.
        url: Of the checkpoint, for messages.

    Raises:
        Damaged: Something in it cannot be true.
    """
    try:
        manifest = Manifest(
            content["step"],
            content["attempt"],
            content["auc"],
            content["values"],
            content["state"],
            {name: (dtype, tuple(shape)) for name, (dtype, shape) in content["tensors"].items()},
            [Shard.from_json(shard) for shard in content["files"]],
            content.get("run"),
        )
        check_shards(manifest.tensors, manifest.shards)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _impossible(error, url) from None
    return manifest


def _check_head(content: Any) -> None:
    """Make sure of what is told of a checkpoint before its files are looked at."""
    if not isinstance(content, dict):
        raise TypeError("its content is no mapping")
    for name in ("step", "attempt", "size_bytes"):
        check_whole_number(name, content[name])
    auc = content["auc"]
    if auc is not None and not (isinstance(auc, int | float) and math.isfinite(auc)):
        raise TypeError(f"auc is {auc!r:.80}")
    for name in ("values", "state", "tensors"):
        if not isinstance(content[name], dict):
            raise TypeError(f"{name} is no mapping")
    if not isinstance(content["files"], list):
        raise TypeError("files is no list")
    if not isinstance(content.get("run"), str | None):
        raise TypeError(f"run is {content['run']!r:.80}")


def _impossible(error: Exception, url: str) -> Damaged:
    why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return Damaged(f"damaged: {why}", where={"file": f"{url}/{MANIFEST_FILE}"})


def _rendered(content: Any) -> bytes:
    """A manifest's file; the same content is always the same bytes."""
    inner = json.dumps(content, sort_keys=True, separators=(",", ":"))
    checksum = xxhash.xxh3_64_hexdigest(inner.encode())
    return f'{{"format":{FORMAT},"xxh3_64":"{checksum}",\n"content":{inner}}}\n'.encode()
