"""Inputs to parts: text is staged, parquet is looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from distrain.errors import DataError
from distrain.etl.bad_lines import BadLineTally
from distrain.etl.parquet_inputs import (
    InspectedFile,
    check_category_types,
    check_same_shape,
    inspect_parquet,
)
from distrain.etl.parts import Part
from distrain.etl.raw_lines import RAW_COLUMNS
from distrain.etl.request import PrepRequest
from distrain.etl.staging import StagedText, stage_text
from distrain.etl.tasks import TaskRunner
from distrain.etl.text_blocks import TextRange, plan_ranges
from distrain.etl.workflow import Workflow
from distrain.storage import InputFile, open_input

_CODECS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN = {
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"PK\x03\x04": "zip",
    b"\x04\x22\x4d\x18": "lz4",
    b"ORC": "ORC",
}
PARQUET = "parquet"


@dataclass(frozen=True)
class ReadInputs:
    """What is in the inputs.

    Attributes:
        parts: All rows, in input order.
        bad_lines: The lines left out.
        category_types: `int64` or `string`, by categorical column.
    """

    parts: tuple[Part, ...]
    bad_lines: BadLineTally
    category_types: dict[str, str]

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return sum(part.num_rows for part in self.parts)


def detect_format(path: str) -> str | None:
    """`parquet`, `gzip`, `zstd`, or `None` for plain text, by the file's first bytes.

    Raises:
        DataError: It is something else, or cannot be read.
    """
    with open_input(path) as handle:
        head = handle.read(8)
    for magic, name in _FOREIGN.items():
        if head.startswith(magic):
            raise DataError(
                f"{name} files are not supported",
                where={"file": path},
                hint="Use plain text, gzip, zstd or parquet.",
            )
    if head.startswith(b"PAR1"):
        return PARQUET
    if path.endswith((".parquet", ".pq")):
        raise DataError(
            "not a parquet file, though named like one",
            where={"file": path},
            hint="Its first bytes are not PAR1; write it again.",
        )
    return next((codec for magic, codec in _CODECS.items() if head.startswith(magic)), None)


def read_inputs(
    files: Sequence[InputFile],
    request: PrepRequest,
    workflow: Workflow,
    runner: TaskRunner,
    staging: Path,
    on_progress: Callable[[int, int, int], None],
) -> ReadInputs:
    """Stage text, look at parquet, in input order.

    Args:
        files: The inputs, in order.
        request: How to read them.
        workflow: Says which columns are needed.
        runner: Where tasks run.
        staging: An existing folder for the staging files, shared with the workers.
        on_progress: Called with tasks done, tasks in all, rows so far.

    Raises:
        DataError: A file, a column, a type or a line that cannot be used.
    """
    tasks = [task for number, file in enumerate(files) for task in _tasks(number, file, request)]
    _check_text_columns(tasks, workflow)
    rows = done = 0

    def count(_: int, result: StagedText | InspectedFile) -> None:
        nonlocal rows, done
        done += 1
        rows += sum(part.num_rows for part in result.parts)
        on_progress(done, len(tasks), rows)

    on_progress(0, len(tasks), 0)
    columns = (workflow.columns, workflow.categorical)
    arguments = [(*task, request, columns, str(staging)) for task in tasks]
    results = runner.run("read", _read_one, arguments, count)
    parts = [part for result in results for part in result.parts]
    types = [
        (file.path, r.category_types if isinstance(r, InspectedFile) else _text_types(workflow))
        for (_, _, file, _), r in zip(tasks, results, strict=True)
    ]
    is_flat = dict.fromkeys(workflow.columns, False)
    check_same_shape(
        [
            (file.path, r.holds_lists if isinstance(r, InspectedFile) else is_flat)
            for (_, _, file, _), r in zip(tasks, results, strict=True)
        ]
    )
    return ReadInputs(tuple(parts), _tally(tasks, results), check_category_types(types))


_Task = tuple[int, int, InputFile, TextRange | None]


def _tasks(number: int, file: InputFile, request: PrepRequest) -> list[_Task]:
    kind = detect_format(file.path)
    if kind == PARQUET:
        return [(number, 0, file, None)]
    ranges = plan_ranges(file, kind, request.block_bytes)
    return [(number, r, file, text) for r, text in enumerate(ranges)]


def _check_text_columns(tasks: Sequence[_Task], workflow: Workflow) -> None:
    unknown = [column for column in workflow.columns if column not in RAW_COLUMNS]
    text = next((file.path for _, _, file, text in tasks if text), None)
    if unknown and text:
        raise DataError(
            f"raw Criteo lines have no columns {', '.join(unknown)}",
            where={"file": text},
            hint="A workflow with other columns needs parquet inputs.",
        )


def _read_one(
    number: int,
    range_number: int,
    file: InputFile,
    text: TextRange | None,
    request: PrepRequest,
    columns: tuple[tuple[str, ...], tuple[str, ...]],
    staging: str,
) -> StagedText | InspectedFile:
    if text is None:
        return inspect_parquet(file.path, *columns, request.part_rows)
    stem = f"{staging}/{number:05d}-{range_number:05d}"
    return stage_text(text, request.layout, request.skip_bad_lines, request.block_bytes, stem)


def _text_types(workflow: Workflow) -> dict[str, str]:
    return dict.fromkeys(workflow.categorical, "int64")


def _tally(tasks: Sequence[_Task], results: Sequence[StagedText | InspectedFile]) -> BadLineTally:
    total = BadLineTally()
    pairs = zip(tasks, results, strict=True)
    for _, ranges in groupby(pairs, key=lambda pair: pair[0][0]):
        lines = 0
        for (_, _, file, _), result in ranges:
            if isinstance(result, StagedText):
                total = total.merged(result.bad_lines.shifted(file.path, lines))
                lines += result.num_lines
    return total
