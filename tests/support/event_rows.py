"""A schema whose rows have events, and batches of it."""

from typing import Any

import torch
from ragged_rows import draw_rows_of_ids, ragged

from distrain.loader.batch import Batch, Ragged
from distrain.schema import ColumnSchema, Schema, Tags

ID, NUMBER = Tags.CATEGORICAL, Tags.CONTINUOUS


def list_column(
    name: str, kind: Tags, domain: str = "", event: str = "seen", **options: Any
) -> ColumnSchema:
    dtype = "int32" if kind == ID else "float32"
    options.setdefault("tags", (kind,))
    properties = {"event": event} | ({"domain": domain} if domain else {})
    return ColumnSchema(name, dtype, is_list=True, is_ragged=True, properties=properties, **options)


SCHEMA = Schema(
    (
        ColumnSchema("clicked", "float32", (Tags.TARGET,)),
        ColumnSchema("user", "int32", (ID, Tags.USER_ID), cardinality=9),
        ColumnSchema("item", "int32", (ID, Tags.ITEM_ID), cardinality=20),
        ColumnSchema("shop", "int32", (ID,), cardinality=6),
        list_column("seen_shop", ID, "shop", cardinality=6),
        list_column("seen_item", ID, "item", cardinality=20),
        list_column("seen_act", ID, cardinality=4),
        list_column("seen_dwell", NUMBER),
        list_column("seen_time", NUMBER, tags=(NUMBER, Tags.TIME_DIFFERENCE)),
        list_column("words", ID, event="", cardinality=7),
        ColumnSchema("price", "float32", (NUMBER,)),
    )
)


def event_batch(
    rows: int, seed: int = 0, most: int = 6, dtype: torch.dtype = torch.float32, longest: int = 0
) -> Batch:
    """Rows with up to `most` events, some with none, or the first with `longest`; of one dtype."""
    generator = torch.Generator().manual_seed(seed)
    names = ("user", "item", "shop")
    sizes = {column.name: column.cardinality or 0 for column in SCHEMA}
    flat = [torch.randint(0, sizes[name], (rows,), generator=generator) for name in names]
    drawn = draw_rows_of_ids(rows, sizes["shop"], generator, most)
    if longest:
        drawn[0] = torch.randint(sizes["shop"], (longest,), generator=generator).tolist()
    shops = ragged(drawn)
    total = len(shops.values)
    fields: dict[str, torch.Tensor] = {
        name: torch.randint(0, sizes[name], (total,), generator=generator).int()
        for name in ("seen_item", "seen_act")
    }
    fields["seen_dwell"] = torch.randn(total, generator=generator, dtype=dtype)
    fields["seen_time"] = torch.rand(total, generator=generator, dtype=dtype) * 1e5
    lists = {name: Ragged(values, shops.offsets) for name, values in fields.items()}
    words = ragged(draw_rows_of_ids(rows, sizes["words"], generator))
    lists |= {"seen_shop": shops, "words": words}
    price = torch.randn(rows, 1, generator=generator, dtype=dtype)
    label = torch.randint(2, (rows,), generator=generator).to(dtype)
    return Batch(torch.stack(flat, 1).int(), price, label, names, ("price",), lists=lists)
