"""Named tensors and values as a folder, which appears whole or not at all.

    tensors.safetensors   every tensor
    manifest.json         format version, distrain's version, the values, each tensor's dtype, shape
                          and checksum, and a checksum of all that; written last

Whoever has state hands in its live tensors by name: a torch tensor, or `Slabs` for one that is too
large to be put together, or spread over ranks. The same names take the saved content in again. The
values are what JSON can hold. Nothing in the folder is code and nothing is unpickled.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import xxhash
from torch import Tensor

import distrain
from distrain.embeddings import Peers
from distrain.errors import DataError
from distrain.models.one_writer import OneWriter
from distrain.models.tensor_file import Slabs, TensorFile, dtype_name, write_tensors
from distrain.storage import whole_dir

FORMAT = 1
TENSORS_FILE = "tensors.safetensors"
MANIFEST_FILE = "manifest.json"


def save_folder(
    path: str | Path,
    tensors: Mapping[str, Tensor | Slabs],
    values: Mapping[str, Any],
    *,
    peers: Peers,
    device: torch.device,
    replace: bool = False,
) -> None:
    """Write a folder.

    Every rank calls it, and rank 0 writes. If a tensor is shared this is a collective operation,
    which fails on every rank if rank 0 cannot write. If not, the other ranks return at once.

    Args:
        path: A local folder that does not exist yet.
        tensors: Live tensors by name; the same names on every rank.
        values: JSON values by name; those of rank 0 are saved.
        peers: Who takes part.
        device: Where the peers' backend wants tensors.
        replace: Whether an existing folder may be replaced.

    Raises:
        OutputError: It exists already and `replace` is false, or could not be written.
        torch.distributed.DistError: Rank 0 could not write it; it says why itself.
    """
    collective = any(not isinstance(t, Tensor) and t.shared for t in tensors.values())
    with OneWriter(peers, device, collective=collective) as writer:
        if not writer.writes:
            write_tensors(None, tensors, writer)
            return
        with whole_dir(path, replace=replace) as folder:
            checksums = write_tensors(folder / TENSORS_FILE, tensors, writer)
            content = {
                "distrain": distrain.__version__,
                "values": dict(values),
                "tensors": {
                    name: {
                        "dtype": dtype_name(tensor.dtype),
                        "shape": list(tensor.shape),
                        "xxh3_64": checksums[name],
                    }
                    for name, tensor in sorted(tensors.items())
                },
            }
            manifest = {"format": FORMAT, "xxh3_64": _checksum(content), "content": content}
            (folder / MANIFEST_FILE).write_text(json.dumps(manifest, indent=1) + "\n")


def read_values(path: str | Path) -> dict[str, Any]:
    """The values of a folder, without its tensors.

    Raises:
        DataError: There is no such folder, or its manifest is missing or damaged.
    """
    values: dict[str, Any] = _read_manifest(Path(path))["values"]
    return values


def load_folder(path: str | Path, tensors: Mapping[str, Tensor | Slabs]) -> dict[str, Any]:
    """Read a folder into tensors of the same names, in place; no communication.

    A folder that is incomplete or of another state is refused before anything is changed. Whether a
    tensor's bytes are those that were written is known when they have been read, slab by slab: if
    they are not, some tensors have been overwritten.

    Args:
        path: The folder.
        tensors: Live tensors by name: the names, shapes and dtypes that were saved.

    Returns:
        The values.

    Raises:
        DataError: The folder or a file in it is missing or damaged, it was written by a newer
            distrain, or its tensors are not these.
    """
    folder = Path(path)
    content = _read_manifest(folder)
    file = folder / TENSORS_FILE
    if not file.is_file():
        raise _missing(file)
    saved = TensorFile(file)
    _check_same(content["tensors"], _told_by(saved), file, "the manifest says")
    live = {name: (dtype_name(t.dtype), list(t.shape)) for name, t in tensors.items()}
    _check_same(content["tensors"], live, folder / MANIFEST_FILE, "this training needs")
    for name, entry in content["tensors"].items():
        if saved.read_into(name, tensors[name]) != entry["xxh3_64"]:
            raise DataError(
                "damaged: the checksum is wrong",
                where={"file": str(file), "tensor": name},
                hint="Use another checkpoint, or copy this one again.",
            )
    values: dict[str, Any] = content["values"]
    return values


def _read_manifest(folder: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise DataError(
            "no such checkpoint",
            where={"path": str(folder)},
            hint="It is a folder; check its name.",
        )
    file = folder / MANIFEST_FILE
    try:
        manifest = json.loads(file.read_text())
    except FileNotFoundError:
        raise _missing(file) from None
    except (OSError, ValueError) as error:
        raise DataError(f"cannot be read: {error}", where={"file": str(file)}) from None
    if not isinstance(manifest, dict) or not {"format", "xxh3_64", "content"} <= set(manifest):
        raise DataError("not the manifest of a checkpoint", where={"file": str(file)})
    if manifest["format"] != FORMAT:
        raise DataError(
            f"saved in format {manifest['format']!r}; this version of distrain reads {FORMAT}",
            where={"file": str(file)},
            hint="Use the version of distrain that wrote it.",
        )
    if manifest["xxh3_64"] != _checksum(manifest["content"]):
        raise DataError("damaged: the checksum is wrong", where={"file": str(file)})
    content: dict[str, Any] = manifest["content"]
    return content


def _checksum(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return xxhash.xxh3_64_hexdigest(text.encode())


def _told_by(file: TensorFile) -> dict[str, tuple[str, list[int]]]:
    return {
        name: (dtype_name(dtype), list(file.shapes[name])) for name, dtype in file.dtypes.items()
    }


def _check_same(
    manifest: Mapping[str, Mapping[str, Any]],
    other: Mapping[str, tuple[str, list[int]]],
    file: Path,
    who: str,
) -> None:
    told = {name: (entry["dtype"], entry["shape"]) for name, entry in manifest.items()}
    saved, needed = (told, other) if file.name == MANIFEST_FILE else (other, told)
    problems = [
        f"{name} is {_text(saved.get(name), 'missing')}, "
        f"{who} {_text(needed.get(name), 'no such tensor')}"
        for name in sorted(set(saved) | set(needed))
        if saved.get(name) != needed.get(name)
    ]
    if problems:
        raise DataError(
            "the saved tensors do not fit:\n  " + "\n  ".join(problems),
            where={"file": str(file)},
            hint="The model, its tables and the kinds of optimizers must be those that were saved.",
        )


def _text(entry: tuple[str, list[int]] | None, otherwise: str) -> str:
    return otherwise if entry is None else f"{entry[0]} {entry[1]}"


def _missing(file: Path) -> DataError:
    return DataError(
        f"the checkpoint lacks {file.name}",
        where={"file": str(file)},
        hint="Copy the whole folder, or use another checkpoint.",
    )
