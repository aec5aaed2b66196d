"""Text to staging files: typed parquet, one file per block, gone at the end of the run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from distrain.errors import DataError
from distrain.etl.bad_lines import BadLine, BadLineTally, shown, split_bad_lines
from distrain.etl.parts import Part, write_parquet
from distrain.etl.raw_lines import RAW_COLUMNS, TextLayout, num_lines, parse_lines
from distrain.etl.text_blocks import TextRange, count_lines_before, read_blocks


@dataclass(frozen=True)
class StagedText:
    """What became of one range of text.

    Attributes:
        parts: The staging files, in input order; none are empty.
        num_lines: How many lines the range has, with the header and the bad ones.
        bad_lines: The lines left out, numbered from the range's start.
    """

    parts: tuple[Part, ...]
    num_lines: int
    bad_lines: BadLineTally

    @property
    def num_rows(self) -> int:
        """How many rows were kept."""
        return sum(part.num_rows for part in self.parts)


def stage_text(
    text: TextRange, layout: TextLayout, skip_bad_lines: bool, block_bytes: int, stem: str
) -> StagedText:
    """Parse a range and write its rows to `STEM-00000.parquet`, ...

    Args:
        text: What to read.
        layout: Its layout.
        skip_bad_lines: Leave bad lines out and count them, rather than stop.
        block_bytes: How much of a compressed file to hold at a time.
        stem: The staging files' path up to their number.

    Raises:
        DataError: The file cannot be read, or a line is bad.
        OutputError: A staging file could not be written.
    """
    parts: list[Part] = []
    tally = BadLineTally()
    lines = 0
    for number, block in enumerate(read_blocks(text, block_bytes)):
        if layout.header and number == 0 and text.start == 0:
            block = _without_header(block, layout, text.path)
            lines += 1
        table, bad = _parse(block, layout, skip_bad_lines, text.path)
        if bad and not skip_bad_lines:
            before = lines + count_lines_before(text)
            raise bad[0].at(text.path, before).error()
        tally = tally.merged(BadLineTally.of(bad).shifted(text.path, lines))
        lines += num_lines(block)
        if table.num_rows:
            path = Path(f"{stem}-{number:05d}.parquet")
            # Read twice and thrown away: cheap to write counts more than small.
            write_parquet(
                table,
                path,
                compression="lz4",
                use_dictionary=False,
                write_statistics=False,
                row_group_size=table.num_rows,
            )
            parts.append(Part(str(path), (0,), table.num_rows, text.path))
    return StagedText(tuple(parts), lines, tally)


def _parse(
    block: bytes, layout: TextLayout, skip_bad_lines: bool, path: str
) -> tuple[pa.Table, list[BadLine]]:
    table = parse_lines(block, layout)
    if table is not None:
        return table, []
    good, bad = split_bad_lines(block, layout, stop_at_first=not skip_bad_lines)
    if bad and not skip_bad_lines:
        return None, bad
    table = parse_lines(good, layout) if bad else None
    if table is None:
        raise DataError(
            "lines that look right cannot be parsed",
            where={"file": path},
            hint="A field may hold a lone carriage return; remove it.",
        )
    return table, bad


def _without_header(block: bytes, layout: TextLayout, path: str) -> bytes:
    header, _, rest = block.partition(b"\n")
    names = header.decode("utf-8", "replace").strip("\r\ufeff").split(layout.delimiter)
    lower, wanted = [n.strip().lower() for n in names], [n.lower() for n in RAW_COLUMNS]
    if len(names) != len(wanted):
        raise DataError(
            f"the header has {len(names)} fields, not {len(wanted)}",
            where={"file": path, "line": 1},
            hint="Check --delimiter, and that the file has a label, I1..I13 and C1..C26.",
        )
    if sorted(lower) == sorted(wanted) and lower != wanted:
        raise DataError(
            "the header names Criteo's columns in another order",
            where={"file": path, "line": 1},
            hint="The columns must be in the order label, I1..I13, C1..C26.",
        )
    if parse_lines(header + b"\n", layout) is not None:
        raise DataError(
            "the first line is a row, not a header",
            where={"file": path, "line": 1, "content": shown(header)},
            hint="Leave --header out, or the first row of each file is lost.",
        )
    return rest
