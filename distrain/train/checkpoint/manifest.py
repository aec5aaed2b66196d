"""The manifest of a checkpoint: a JSON file with the checkpoint's content, and checksums.

It is written last: a folder without a manifest is not a checkpoint.

Anyone with write access to a bucket can write a manifest. Its values become paths, allocations and
offsets in memory, so all of them are checked before use.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xxhash

from distrain.errors import DataError
from distrain.train.checkpoint.local_rows import Rows
from distrain.train.checkpoint.shard import RANK_PREFIX, Shard, num_rows, row_bytes_of, shard_file
from distrain.version import __version__

# The formats that can be read; the last one is written. Version 0.2.0 wrote both. In format 2, the
# rows of a table may be sharded by a hash.
FORMATS = (1, 2)
MANIFEST_FILE = "manifest.json"
DAMAGED_FILE = "manifest.damaged.json"
"""The name to which the manifest of a damaged checkpoint is renamed."""


class Damaged(DataError):
    """Bytes of a checkpoint are missing, or differ from those that were written."""


TensorFacts = tuple[str, tuple[int, ...]]  # dtype, by its name in safetensors, and shape


@dataclass(frozen=True)
class Manifest:
    """The content of a manifest."""

    step: int  # training steps in the checkpoint
    attempt: int
    auc: float | None  # of the validation rows at this step, if they were scored
    values: Mapping[str, Any]  # the caller's values, such as the job's spec and schema
    state: Mapping[str, Any]  # the values of a `TrainingState` besides its tensors
    tensors: Mapping[str, TensorFacts]  # without the ranks' own tensors
    shards: Sequence[Shard]  # the files, by the rank that wrote them
    run: str | None = None  # the run that wrote it; `None` if unknown

    @property
    def size_bytes(self) -> int:
        return sum(shard.size_bytes for shard in self.shards)

    def lacking(self) -> list[str]:
        """Return a message for each tensor with rows that are in no file; `[]` if there is none."""
        counts = dict.fromkeys(self.tensors, 0)
        for shard in self.shards:
            for piece in shard.pieces:
                if not piece.name.startswith(RANK_PREFIX):
                    counts[piece.name] = counts.get(piece.name, 0) + piece.rows.count
        return [
            f"{name}: {counts[name]} of {num_rows(shape)} rows"
            for name, (_, shape) in self.tensors.items()
            if math.prod(shape) and counts[name] != num_rows(shape)
        ]

    def check_whole(self, url: str) -> None:
        """Raise `Damaged` if rows of a tensor are in no file; `url` is named in the error."""
        lacking = self.lacking()
        if lacking:
            raise Damaged("not whole: " + "; ".join(lacking), where={"path": url})

    def to_bytes(self) -> bytes:
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
    """Parse and check the bytes of a manifest; return its content as JSON values.

    Raises `Damaged` if its checksum or its fields are wrong, `DataError` for an unsupported format.
    """
    where = {"file": f"{url}/{MANIFEST_FILE}"}
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"damaged: {error}", where=where) from None
    if not isinstance(document, dict) or not {"format", "xxh3_64", "content"} <= set(document):
        raise Damaged("damaged: not the manifest of a checkpoint", where=where)
    if document["format"] not in FORMATS:
        raise DataError(
            f"saved in format {document['format']!r}; this version of distrain reads "
            f"{' and '.join(map(str, FORMATS))}",
            where=where,
            hint="Use the version of distrain that wrote it.",
        )
    # The checksum covers everything, including parts that JSON would ignore.
    if _rendered(document["content"], document["format"]) != content:
        raise Damaged("damaged: the checksum is wrong", where=where)
    inner: dict[str, Any] = document["content"]
    try:
        _check_head(inner)
    except (TypeError, KeyError) as error:
        raise _impossible(error, url) from None
    return inner


def from_document(content: Mapping[str, Any], url: str = "") -> Manifest:
    """Return a manifest from its JSON values; raise `Damaged` if a value is impossible.

    This only compares the values with each other. `ShardReading.check` compares them with the
    files.
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
        _check_shards(manifest.tensors, manifest.shards)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _impossible(error, url) from None
    return manifest


def _check_head(content: Any) -> None:
    """Check the fields that are used before the checkpoint's files are read.

    Raises `TypeError`, or `KeyError` for a missing field.
    """
    if not isinstance(content, dict):
        raise TypeError("its content is not a mapping")
    for name in ("step", "attempt", "size_bytes"):
        _check_whole_number(name, content[name])
    auc = content["auc"]
    if auc is not None and not (isinstance(auc, int | float) and math.isfinite(auc)):
        raise TypeError(f"auc is {auc!r:.80}")
    for name in ("values", "state", "tensors"):
        if not isinstance(content[name], dict):
            raise TypeError(f"{name} is not a mapping")
    if not isinstance(content["files"], list):
        raise TypeError("files is not a list")
    if not isinstance(content.get("run"), str | None):
        raise TypeError(f"run is {content['run']!r:.80}")


def _impossible(error: Exception, url: str) -> Damaged:
    why = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
    return Damaged(f"damaged: {why}", where={"file": f"{url}/{MANIFEST_FILE}"})


def _rendered(content: Any, version: int = FORMATS[-1]) -> bytes:
    inner = json.dumps(content, separators=(",", ":"))  # ordered, like the tasks of a spec
    checksum = xxhash.xxh3_64_hexdigest(inner.encode())
    return f'{{"format":{version},"xxh3_64":"{checksum}",\n"content":{inner}}}\n'.encode()


_MOST_BYTES = 1 << 60
"""The largest size of a tensor in bytes, with each dimension counted as at least 1.

Also the largest allowed value of sizes and counts. A larger value means that the manifest is
damaged.
"""


def _check_shards(tensors: Mapping[str, TensorFacts], shards: Sequence[Shard]) -> None:
    """Raise an error unless the descriptions of files and of tensors are consistent.

    The error is a `ValueError`, `TypeError` or `KeyError`.
    """
    for name, facts in tensors.items():
        _check_facts(name, facts)
    for rank, shard in enumerate(shards):
        # The exact name, so that it cannot be a path to another place, or a file used twice.
        if shard.file != shard_file(rank, len(shards)):
            raise ValueError(
                f"the file of rank {rank} is called {shard.file!r}, "
                f"not {shard_file(rank, len(shards))}"
            )
        try:
            _check_shard(tensors, shard)
        except KeyError as error:
            raise ValueError(f"{shard.file}: there is no {error}") from None
        except (ValueError, TypeError) as error:
            raise ValueError(f"{shard.file}: {error}") from None


def _check_whole_number(name: str, value: object, least: int = 0) -> None:
    if type(value) is not int or not least <= value <= _MOST_BYTES:
        raise TypeError(f"{name} is {value!r:.80}")


def _check_shard(tensors: Mapping[str, TensorFacts], shard: Shard) -> None:
    _check_whole_number("size_bytes", shard.size_bytes)
    _check_whole_number("header_bytes", shard.header_bytes, least=8)
    for name, facts in shard.rank_tensors.items():
        _check_facts(name, facts)
    lacking = {
        f"{RANK_PREFIX}{name}"
        for name, (_, shape) in shard.rank_tensors.items()
        if math.prod(shape)
    }
    end = shard.header_bytes
    for piece in shard.pieces:
        own = piece.name.startswith(RANK_PREFIX)
        dtype, shape = (
            shard.rank_tensors[piece.name.removeprefix(RANK_PREFIX)] if own else tensors[piece.name]
        )
        _check_rows(piece.name, piece.rows, num_rows(shape))
        if own:
            if piece.rows != Rows(0, 1, num_rows(shape)) or piece.name not in lacking:
                raise ValueError(f"{piece.name} is not there exactly once, completely")
            lacking.remove(piece.name)
        if piece.offset != end:
            raise ValueError(f"{piece.name} starts at byte {piece.offset!r:.80}, not at {end}")
        end += piece.rows.count * row_bytes_of(dtype, shape)
    if lacking:
        raise ValueError(f"it lacks {', '.join(sorted(lacking))}")
    if end != shard.size_bytes:
        raise ValueError(f"its pieces end at byte {end}, but the file at {shard.size_bytes}")


def _check_rows(name: str, rows: Rows, of: int) -> None:
    _check_whole_number("a piece's stride", rows.stride, least=1)
    _check_whole_number("a piece's number of rows", rows.count, least=1)
    if rows.rank is not None:
        _check_whole_number("a piece's rank", rows.rank)
        _check_whole_number("a piece's block", rows.block)
        if rows.rank >= rows.stride:
            raise ValueError(f"a piece of {name} is of rank {rows.rank} of {rows.stride}")
    elif rows.stride != 1:
        raise ValueError(f"a piece of {name} has each {rows.stride}th row, as before version 0.2.0")
    least = 0 if rows.rank is None else 1 - rows.stride  # a block may begin before the tensor
    _check_whole_number("a piece's first row", rows.first, least)
    if rows.row(0) < 0:
        raise ValueError(f"a piece of {name} begins at {rows.row(0)}")
    if rows.last >= of:
        raise ValueError(f"{name} has {of} rows, but a piece goes to {rows.last}")


def _check_facts(name: str, facts: TensorFacts) -> None:
    dtype, shape = facts
    for size in shape:
        _check_whole_number(f"a dimension of {name}", size)
    if math.prod(max(size, 1) for size in shape) * row_bytes_of(dtype, ()) > _MOST_BYTES:
        raise ValueError(f"{name} of shape {list(shape)} is impossibly large")
