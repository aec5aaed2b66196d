"""Generates data sets of any size: the request, and the writer of the files."""

import contextlib
import dataclasses
import gzip
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from distrain.errors import InputError, OutputError
from distrain.prep.synthetic.draw import (
    CHUNK_ROWS,
    DrawnFeatures,
    Flags,
    Words32,
    draw_features,
    raw_category,
)
from distrain.prep.synthetic.planted import PlantedModel, SplitSummary, Truth, probabilities
from distrain.schema.criteo import CATEGORICAL, CONTINUOUS, LABEL
from distrain.storage.outputs import atomic_dir


@dataclass(frozen=True)
class SynthRequest:
    """A data set to generate."""

    out: str | Path  # the folder to write; it appears complete or not at all
    rows: int  # training rows, at least 1
    valid_rows: int = 0  # validation rows from the same model, 0 for none
    seed: int = 0  # determines the planted model and the rows, at least 0
    scale: float = 0.01  # factor on the cardinalities of long category columns, in (0, 1]
    click_rate: float = 0.03  # wanted mean click probability, in [0.001, 0.999]
    format: str = "tsv"  # "tsv" (Criteo's own), "tsv.gz" or "parquet" (raw values, nullable)
    files: int = 1  # number of files of each split, at most one for each row
    overwrite: bool = False  # whether an earlier generated data set at `out` may be replaced

    def __post_init__(self) -> None:
        rules = {
            "rows": ("at least 1", self.rows >= 1),
            "valid_rows": ("at least 0", self.valid_rows >= 0),
            "seed": ("at least 0", self.seed >= 0),
            "scale": ("above 0 and at most 1", 0 < self.scale <= 1),
            "click_rate": ("0.001 to 0.999", 0.001 <= self.click_rate <= 0.999),
            "format": (f"one of {', '.join(FORMATS)}", self.format in FORMATS),
            "files": (f"1 to rows ({self.rows})", 1 <= self.files <= max(self.rows, 1)),
        }
        mistakes = [
            f"{name} is {getattr(self, name)!r}, must be {rule}"
            for name, (rule, good) in rules.items()
            if not good
        ]
        if mistakes:
            raise InputError("invalid options for generated data: " + "; ".join(mistakes))


@dataclass(frozen=True)
class SynthProgress:
    """Progress of the generator: the current split, and rows over all splits."""

    split: str
    rows_done: int
    rows_total: int


@dataclass(frozen=True)
class SynthResult:
    """A generated data set; `splits` has "train", and "valid" if requested.

    `size_bytes` is the size of all data files.
    """

    request: SynthRequest
    out: Path
    splits: dict[str, SplitSummary]
    size_bytes: int
    wall_s: float

    @property
    def rows_per_s(self) -> float:
        return sum(split.rows for split in self.splits.values()) / self.wall_s


PLANTED = "planted.json"

OnProgress = Callable[[SynthProgress], None]


def generate(request: SynthRequest, on_progress: OnProgress | None = None) -> SynthResult:
    """Write `OUT/train-00000.tsv` ..., `OUT/valid-00000.tsv` ... and `OUT/planted.json`.

    The rows are a pure function of (seed, scale, click_rate, split, row index): the number
    of files, the format and the number of rows do not change them, and a smaller data set has the
    first rows of a larger one. With the same versions of numpy and pyarrow on the same kind of CPU
    the files are identical. Memory does not grow with the rows.

    Args:
        on_progress: Called after every 65,536 rows, and at the end of each file.

    Raises:
        OutputError: `request.out` exists and may not be replaced, or it cannot be written.
    """
    started = time.perf_counter()
    out = Path(request.out)
    _refuse_foreign_folder(out, request.overwrite)
    with atomic_dir(out, replace=request.overwrite) as folder:
        model = PlantedModel.fit(request.seed, request.scale, request.click_rate)
        count = _progress_over_splits(request, on_progress)
        splits = {
            split: _write_split(request, model, split, rows, folder, count)
            for split, rows in (("train", request.rows), ("valid", request.valid_rows))
            if rows
        }
        size_bytes = sum(file.stat().st_size for file in folder.iterdir())
        text = json.dumps(_planted_document(request, splits), indent=2)
        (folder / PLANTED).write_text(text + "\n", encoding="utf-8")
    return SynthResult(request, out, splits, size_bytes, time.perf_counter() - started)


def _write_split(
    request: SynthRequest,
    model: PlantedModel,
    split: str,
    rows: int,
    folder: Path,
    count: Callable[[str, int], None],
) -> SplitSummary:
    truth = Truth()
    tables = _tables(request, model, split, rows, truth)
    files = min(request.files, rows)
    names = tuple(f"{split}-{index:05d}.{request.format}" for index in range(files))
    rest = next(tables)
    for index, name in enumerate(names):
        left = rows * (index + 1) // files - rows * index // files
        with SINKS[request.format](folder / name) as write:
            while left:
                if not rest.num_rows:
                    rest = next(tables)
                taken = min(left, rest.num_rows)
                write(rest.slice(0, taken))
                rest, left = rest.slice(taken), left - taken
                count(split, taken)
    return truth.summary(names)


def _tables(
    request: SynthRequest, model: PlantedModel, split: str, rows: int, truth: Truth
) -> Iterator[Any]:
    """Yield the split's rows as Arrow tables, one per chunk; also add each chunk to `truth`."""
    for start in range(0, rows, CHUNK_ROWS):
        taken = min(CHUNK_ROWS, rows - start)
        features = draw_features(request.seed, split, start // CHUNK_ROWS, request.scale)
        logits = model.logits(features)
        labels = (features.coin < probabilities(logits)).astype(np.int32)
        truth.update(logits[:taken], labels[:taken])
        yield raw_table(features, labels).slice(0, taken)


def _progress_over_splits(
    request: SynthRequest, on_progress: OnProgress | None
) -> Callable[[str, int], None]:
    rows_total, rows_done = request.rows + request.valid_rows, 0

    def count(split: str, rows: int) -> None:
        nonlocal rows_done
        rows_done += rows
        if on_progress:
            on_progress(SynthProgress(split, rows_done, rows_total))

    return count


def _refuse_foreign_folder(out: Path, overwrite: bool) -> None:
    # --overwrite removes the folder, but never one that holds other files.
    if overwrite and out.exists() and not (out / PLANTED).is_file():
        if out.is_dir() and not any(out.iterdir()):
            return
        raise OutputError(
            "will not overwrite a folder that is not a generated data set",
            where={"path": str(out)},
            hint=f"It does not contain {PLANTED}: choose another name, or remove it yourself.",
        )


def _planted_document(request: SynthRequest, splits: dict[str, SplitSummary]) -> dict[str, Any]:
    return {
        "kind": "planted",
        "version": 1,
        "seed": request.seed,
        "scale": request.scale,
        "click_rate": request.click_rate,
        "format": request.format,
        "splits": {name: dataclasses.asdict(split) for name, split in splits.items()},
    }


# Four hexadecimal digits of every 16-bit word, as the four bytes of an integer.
_HEX = np.frombuffer("".join(f"{word:04x}" for word in range(1 << 16)).encode(), np.uint32)

RAW_SCHEMA = pa.schema(
    [
        (LABEL, pa.int32()),
        *((name, pa.int64()) for name in CONTINUOUS),
        *((name, pa.string()) for name in CATEGORICAL),
    ]
)


def raw_table(features: DrawnFeatures, labels: npt.NDArray[np.int32]) -> Any:
    """Return the rows as a `pyarrow.Table` of `RAW_SCHEMA`: label, I1..I13, C1..C26."""
    arrays = [pa.array(labels)]
    for name in CONTINUOUS:
        values = features.integers[name].astype(np.int64)
        arrays.append(pa.array(values, mask=features.missing.get(name)))
    for column, name in enumerate(CATEGORICAL):
        words = raw_category(column, features.ids[name])
        arrays.append(_hex_strings(words, features.missing.get(name)))
    return pa.Table.from_arrays(arrays, schema=RAW_SCHEMA)


def _hex_strings(words: Words32, missing: Flags | None) -> Any:
    rows = len(words)
    digits = np.empty((rows, 2), np.uint32)
    digits[:, 0] = _HEX[words >> np.uint32(16)]
    digits[:, 1] = _HEX[words & np.uint32(0xFFFF)]
    offsets = np.zeros(rows + 1, np.int32)
    if missing is None:
        offsets[1:] = 8
        validity = None
    else:
        offsets[1:] = np.where(missing, 0, 8)
        validity = pa.py_buffer(np.packbits(~missing, bitorder="little"))
        digits = digits[~missing]
    np.cumsum(offsets, out=offsets)
    return pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(digits), validity)


Write = Callable[[Any], None]


@contextlib.contextmanager
def tsv_sink(path: Path) -> Iterator[Write]:
    """Context manager that yields a function that appends a table of `RAW_SCHEMA` to a new file."""
    with path.open("wb") as file, _csv_writer(file) as writer:
        yield writer.write


@contextlib.contextmanager
def tsv_gz_sink(path: Path) -> Iterator[Write]:
    """Context manager like `tsv_sink`, for a gzip file.

    The gzip header has no name and no time, so that equal rows give equal bytes. Level 1: hashes
    hardly compress, and level 6 takes three times as long for 4 % less.
    """
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", 1, file, mtime=0) as packed,
        _csv_writer(packed) as writer,
    ):
        yield writer.write


@contextlib.contextmanager
def parquet_sink(path: Path) -> Iterator[Write]:
    """Context manager that yields a function that writes a table of rows to a parquet file."""
    with pyarrow.parquet.ParquetWriter(path, RAW_SCHEMA, compression="snappy") as writer:
        yield lambda table: writer.write_table(table, row_group_size=CHUNK_ROWS)


SINKS = {"tsv": tsv_sink, "tsv.gz": tsv_gz_sink, "parquet": parquet_sink}
FORMATS = tuple(SINKS)


def _csv_writer(file: Any) -> Any:
    options = pyarrow.csv.WriteOptions(
        include_header=False, delimiter="\t", quoting_style="none", batch_size=CHUNK_ROWS
    )
    return pyarrow.csv.CSVWriter(file, RAW_SCHEMA, write_options=options)
