"""Where the rows of tables lie in the files of an export, so that a delta can have single rows."""

import json
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

_WEIGHTS = "data/weights"
_LOCAL_HEADER_BYTES = 30
"""Of a zip's member, before its name and its extra field, whose lengths are the last four."""


class TablePart(NamedTuple):
    """A tensor of an exported model with a row for each row of some tables.

    Attributes:
        tensor: Its name in the model.
        part: What it holds: "weight", or of rounded tables "codes" or "steps".
        values: `[rows, width]`.
        tables: For each of the tables its name, its first row and the number of its rows.
    """

    tensor: str
    part: str
    values: Tensor
    tables: tuple[tuple[str, int, int], ...]


def row_places(file: Path, parts: Iterable[TablePart]) -> list[dict[str, Any]]:
    """For each table and part: file, offset of the first row, number of rows and bytes of a row.

    What the exporter stored in another form has no places.
    """
    lying = _in_onnx(file) if file.suffix == ".onnx" else _in_zip(file)
    places = []
    for one in parts:
        row_bytes = one.values.shape[1] * one.values.element_size()
        name, offset, size = lying.get(one.tensor, ("", 0, 0))
        if not row_bytes or size != len(one.values) * row_bytes:
            continue
        for table, first, rows in one.tables:
            at: dict[str, Any] = {"table": table, "part": one.part, "file": name}
            at |= {"offset": offset + first * row_bytes, "rows": rows, "row_bytes": row_bytes}
            places.append(at)
    return places


def _in_onnx(file: Path) -> dict[str, tuple[str, int, int]]:
    import onnx

    graph = onnx.load(str(file), load_external_data=False).graph
    found = {}
    for tensor in graph.initializer:
        facts = {fact.key: fact.value for fact in tensor.external_data}
        if facts:
            size = (int(facts["offset"]), int(facts["length"]))
            found[tensor.name] = (facts["location"], *size)
    return found


def _in_zip(file: Path) -> dict[str, tuple[str, int, int]]:
    found = {}
    with zipfile.ZipFile(file) as archive, file.open("rb") as content:
        members = {one.filename.partition("/")[2]: one for one in archive.infolist()}
        config = archive.read(members[f"{_WEIGHTS}/model_weights_config.json"])
        for name, facts in json.loads(config)["config"].items():
            member = members[f"{_WEIGHTS}/{facts['path_name']}"]
            if member.compress_type != zipfile.ZIP_STORED:
                continue
            content.seek(member.header_offset)
            header = content.read(_LOCAL_HEADER_BYTES)
            ahead = sum(struct.unpack("<HH", header[-4:])) + _LOCAL_HEADER_BYTES
            found[name] = (file.name, member.header_offset + ahead, member.file_size)
    return found
