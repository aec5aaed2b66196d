"""What is poor about how a table is laid out or read, and what would be better."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from distrain.loader.dataset import Dataset
from distrain.loader.facts import TableFacts
from distrain.loader.memory import largest_chunk_rows, memory_bound
from distrain.loader.options import LoaderOptions

_SMALL_GROUP_ROWS = 4096
_GOOD_GROUP_ROWS = 65536
_SLOW_CODECS = ("ZSTD", "GZIP", "BROTLI")
_MOST_LISTED = 5


def advice_for(
    dataset: Dataset,
    options: LoaderOptions,
    facts: TableFacts,
    *,
    memory_budget_bytes: int,
    pinned: bool = False,
) -> list[str]:
    """What to change, most pressing first; nothing if all is well.

    Args:
        dataset: The table.
        options: The loader's.
        facts: Of the table.
        memory_budget_bytes: What a rank's loader may hold.
        pinned: Whether its batches are page-locked.
    """
    found = [
        _about_memory(dataset, options, facts, memory_budget_bytes, pinned),
        _about_few_chunks(dataset, options),
        _about_small_groups(facts, options.lanes),
        _about_codecs(facts),
        _about_wide_ids(facts),
    ]
    return [advice for advice in found if advice]


def _about_memory(
    dataset: Dataset, options: LoaderOptions, facts: TableFacts, budget: int, pinned: bool
) -> str | None:
    def bytes_with(chunk_rows: int, group_rows: int, options: LoaderOptions = options) -> int:
        return memory_bound(
            len(dataset),
            dataset.row_bytes,
            options,
            chunk_rows=chunk_rows,
            group_rows=group_rows,
            pinned=pinned,
            decoded_row_bytes=facts.decoded_row_bytes,
            compressed_group_bytes=facts.largest_group_bytes * group_rows // largest_group,
            num_groups=-(-len(dataset) // group_rows),
        ).total_bytes

    largest_group = max(facts.group_rows)
    now = bytes_with(largest_chunk_rows(dataset, options), largest_group)
    if now <= budget:
        return None
    problem = f"a rank's loader may hold {now / 1e6:,.0f} MB, the budget is {budget / 1e6:,.0f} MB"
    if options.shuffle == "full":
        return f"{problem}: use more ranks, or data.shuffle: chunk with several parts_per_chunk"
    for parts in range(options.parts_per_chunk - 1, 0, -1):
        fewer = replace(options, parts_per_chunk=parts)
        if bytes_with(largest_chunk_rows(dataset, fewer), largest_group, fewer) <= budget:
            return f"{problem}: data.parts_per_chunk: {parts} fits"
    parts = options.parts_per_chunk if options.shuffle == "chunk" else 1
    rows = _GOOD_GROUP_ROWS
    while rows >= _SMALL_GROUP_ROWS:
        if rows < largest_group and bytes_with(rows * parts, rows) <= budget:
            return (
                f"{problem}: row groups of {rows:,} rows fit (--row-group-rows {rows} of "
                "`distrain prep` or `distrain pack`)"
            )
        rows //= 2
    return (
        f"{problem}: use more ranks, a smaller train.global_batch_size, fewer "
        "data.prefetch_batches or a smaller data.part_size"
    )


def _about_few_chunks(dataset: Dataset, options: LoaderOptions) -> str | None:
    if options.shuffle != "chunk":
        return None
    chunks = -(-len(dataset.parts) // options.parts_per_chunk)
    if chunks >= options.lanes or len(dataset) < options.lanes * _SMALL_GROUP_ROWS:
        return None
    return (
        f"{chunks} chunks are fewer than {options.lanes} lanes: lanes share chunks, so several "
        "ranks would decode the same row groups; write smaller row groups, or lower "
        "data.parts_per_chunk or train.lanes"
    )


def _about_small_groups(facts: TableFacts, lanes: int) -> str | None:
    middle = int(median(facts.group_rows))
    better = min(_GOOD_GROUP_ROWS, sum(facts.group_rows) // lanes)
    if middle >= _SMALL_GROUP_ROWS or better < _SMALL_GROUP_ROWS:
        return None  # large enough; or the table is too small for it to matter
    return (
        f"row groups of about {middle:,} rows: opening each costs more than its rows; "
        f"write them anew with {better:,} rows (`distrain pack --row-group-rows {better}`)"
    )


def _about_codecs(facts: TableFacts) -> str | None:
    slow = {codec: facts.codec_bytes.get(codec, 0) for codec in _SLOW_CODECS}
    share = sum(slow.values()) / max(1, facts.compressed_bytes)
    if share < 0.5:
        return None
    names = ", ".join(codec for codec, size in slow.items() if size)
    return (
        f"{share:.0%} of the bytes are compressed with {names}, which decodes slowly: "
        "LZ4 or Snappy is faster, `distrain pack` needs no decoding"
    )


def _about_wide_ids(facts: TableFacts) -> str | None:
    if not facts.wide_ids:
        return None
    names = ", ".join(facts.wide_ids[:_MOST_LISTED])
    rest = len(facts.wide_ids) - _MOST_LISTED
    more = f" and {rest} more" if rest > 0 else ""
    return f"ids are int64 in {names}{more}: as int32, which they fit, they decode faster"
