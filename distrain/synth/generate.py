"""Chunks of rows, one after the other, into the files of each split."""

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from distrain.errors import OutputError
from distrain.storage import whole_dir
from distrain.synth.draw import CHUNK_ROWS, draw_features
from distrain.synth.encode import raw_table
from distrain.synth.planted import PlantedModel, probabilities
from distrain.synth.request import SplitSummary, SynthProgress, SynthRequest, SynthResult
from distrain.synth.sinks import SINKS
from distrain.synth.truth import Truth

PLANTED = "planted.json"

OnProgress = Callable[[SynthProgress], None]


def generate(request: SynthRequest, on_progress: OnProgress | None = None) -> SynthResult:
    """Write `OUT/train-00000.tsv` ..., `OUT/valid-00000.tsv` ... and `OUT/planted.json`.

    The rows are a pure function of (seed, scale, click_rate, split, row index): neither the number
    of files, nor the format, nor the number of rows changes them, and fewer rows are a prefix of
    more. With the same versions of numpy and pyarrow on the same kind of processor the files
    are equal to the byte. Memory does not grow with the rows.

    Args:
        request: What to generate.
        on_progress: Called after every 65,536 rows, and at the end of each file.

    Raises:
        OutputError: `request.out` exists and may not be replaced, or it cannot be written.
    """
    started = time.perf_counter()
    out = Path(request.out)
    _refuse_foreign_folder(out, request.overwrite)
    with whole_dir(out, replace=request.overwrite) as folder:
        model = PlantedModel.fit(request.seed, request.scale, request.click_rate)
        tell = _progress_over_splits(request, on_progress)
        splits = {
            split: _write_split(request, model, split, rows, folder, tell)
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
    tell: Callable[[str, int], None],
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
                tell(split, taken)
    return truth.summary(names)


def _tables(
    request: SynthRequest, model: PlantedModel, split: str, rows: int, truth: Truth
) -> Iterator[Any]:
    """The split's rows as arrow tables, one per chunk; counts each chunk before it is yielded."""
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

    def tell(split: str, rows: int) -> None:
        nonlocal rows_done
        rows_done += rows
        if on_progress:
            on_progress(SynthProgress(split, rows_done, rows_total))

    return tell


def _refuse_foreign_folder(out: Path, overwrite: bool) -> None:
    # --overwrite removes what is there: never a folder that somebody else filled.
    if overwrite and out.exists() and not (out / PLANTED).is_file():
        if out.is_dir() and not any(out.iterdir()):
            return
        raise OutputError(
            "will not overwrite what is no generated data set",
            where={"path": str(out)},
            hint=f"It holds no {PLANTED}: choose another name, or remove it yourself.",
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
