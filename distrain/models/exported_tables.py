"""Replaces a model's embedding tables by torch lookups that `torch.export` accepts.

Also finds the byte positions of the tables' rows in the exported file.
"""

import json
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from distrain.errors import ModelError
from distrain.loader.batch import Ragged
from distrain.models.embeddings.collection import EmbeddingCollection
from distrain.models.embeddings.columns import TableColumn
from distrain.models.embeddings.table_store import Store
from distrain.models.quantised import QuantisedTable, TableForm


class PlainLookup(nn.Module):
    """Looks up the tables of one store with torch's operations only.

    `weight` has the rows of all tables of the store. `form` is the precision in which they are
    kept, such as "int8" (`QuantisedTable`). `limits` has the maximum length of lists by column:
    later values are ignored. Lookups return float32, except of float64 tables in the form "fp32".
    """

    starts: Tensor

    def __init__(
        self,
        tables: EmbeddingCollection,
        store: Store,
        weight: Tensor,
        form: TableForm,
        limits: Mapping[str, int],
    ):
        super().__init__()
        self.limits = limits
        values = weight.detach()
        self.fp32_bytes = 4 * values.numel()
        self.table = None
        if form == "fp32":
            values = values.float() if values.dtype == torch.bfloat16 else values
            self.weight = nn.Parameter(values, requires_grad=False)
        else:
            self.table = QuantisedTable(values, form)
        self.tables = tuple(
            (table.table_name, start, table.cardinality)
            for table, start in zip(store.tables, store.starts.tolist(), strict=True)
        )
        order = {name: place for place, name in enumerate(tables.names)}
        first_keys = store.starts.tolist()
        starts = [first_keys[table] for table in store.table_of]
        num_flat = len(store.flat)
        self.flat = [order[column.name] for column in store.columns[:num_flat]]
        self.takes_all = self.flat == list(range(len(order)))
        self.register_buffer("starts", torch.tensor(starts[:num_flat], dtype=torch.int64))
        lists = list(zip(store.columns[num_flat:], starts[num_flat:], strict=True))
        self.lists = [one for one in lists if not one[0].is_sequence]
        self.of_events = [one for one in lists if one[0].is_sequence]
        self.places = [place for place in store.places if place >= 0]
        self.in_order = not self.lists and self.places == sorted(self.places)

    def forward(self, ids: Tensor, lists: Mapping[str, Ragged]) -> Tensor:
        own = ids if self.takes_all else ids[:, self.flat]
        flat = self._rows(own.long() + self.starts)
        if self.in_order or not self.places:
            return flat
        pooled = [self._pooled(column, start, lists[column.name]) for column, start in self.lists]
        embedded = dict(zip(self.places, [*flat.unbind(1), *pooled], strict=True))
        return torch.stack([embedded[place] for place in sorted(embedded)], dim=1)

    def sequences(self, lists: Mapping[str, Ragged]) -> Iterator[tuple[str, Tensor]]:
        for column, start in self.of_events:
            ids = lists[column.name].values.long() + start
            yield column.name, self._rows(ids)

    def _rows(self, ids: Tensor) -> Tensor:
        if self.table is None:
            return functional.embedding(ids, self.weight)
        rows: Tensor = self.table(ids)
        return rows

    def _pooled(self, column: TableColumn, start: int, lists: Ragged) -> Tensor:
        """Return each row's combined embeddings of a list column, `[rows, dim]`.

        The result has the bits of torch's embedding_bag, which ONNX converts to a loop over rows.
        """
        ids, lengths, most = lists.values.long(), lists.lengths, self.limits.get(column.name)
        if most is None:
            rows = self._rows(ids + start)
        else:  # a graph cannot drop values: its sizes depend only on the sizes of its inputs
            kept = _first_of_rows(lists, most)
            rows = self._rows(ids * kept + start) * kept.unsqueeze(1)
            lengths = lengths.clamp(max=most)
        pooled = rows.new_zeros(lengths.shape[0], rows.shape[1])
        pooled = pooled.index_add(0, lists.row_of_values, rows)
        counts = lengths.clamp(min=1).to(pooled.dtype).unsqueeze(1)
        if column.combiner == "mean":
            return pooled / counts
        return pooled * counts.sqrt().reciprocal() if column.combiner == "sqrtn" else pooled


def _first_of_rows(lists: Ragged, most: int) -> Tensor:
    """Return for each value whether it is among the first `most` of its row, `[values]`, bool."""
    places = torch.arange(lists.values.shape[0], device=lists.values.device)
    return places < lists.offsets[lists.row_of_values] + most


def lookups_of(
    tables: EmbeddingCollection, form: TableForm, limits: Mapping[str, int]
) -> Iterator[PlainLookup]:
    stores, groups = tables.stores, tables.groups
    whole = all(store.num_local_rows == store.num_rows for store in stores)
    if not whole or len(stores) != len(groups):
        raise ModelError(
            "only a model with all its tables in one place can be exported",
            where={"placements": ", ".join(sorted({store.placement for store in stores}))},
            hint="Save it, and export the result of load_model.",
        )
    tables.apply_factor()
    for store, weight in zip(stores, tables.weights, strict=True):
        yield PlainLookup(tables, store, weight, form, limits)


_WEIGHTS = "data/weights"
_LOCAL_HEADER_BYTES = 30
"""The size of a zip member's header before its name and extra field.

The header's last 4 bytes are the lengths of these two.
"""


class TablePart(NamedTuple):
    """A tensor of an exported model that has a row for each row of some tables."""

    tensor: str  # its name in the model
    part: str  # its content: "weight"; for quantised tables "codes" or "steps"
    values: Tensor  # `[rows, width]`
    # for each table: its name, its first row, and its number of rows
    tables: tuple[tuple[str, int, int], ...]


def row_places(file: Path, parts: Iterable[TablePart]) -> list[dict[str, Any]]:
    """Return where the rows of tables are in an exported file, for each table and part.

    Each dictionary has `table`, `part` (see `TablePart`), `file` (its name), `offset` (of the first
    row, in bytes), `rows` (their number) and `row_bytes`. Tables that the exporter stored in
    another form are omitted.
    """
    stored = _in_onnx(file) if file.suffix == ".onnx" else _in_zip(file)
    places = []
    for one in parts:
        row_bytes = one.values.shape[1] * one.values.element_size()
        name, offset, size = stored.get(one.tensor, ("", 0, 0))
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
    places = {}
    for tensor in graph.initializer:
        facts = {fact.key: fact.value for fact in tensor.external_data}
        if facts:
            size = (int(facts["offset"]), int(facts["length"]))
            places[tensor.name] = (facts["location"], *size)
    return places


def _in_zip(file: Path) -> dict[str, tuple[str, int, int]]:
    places = {}
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
            places[name] = (file.name, member.header_offset + ahead, member.file_size)
    return places
