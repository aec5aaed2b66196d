"""Scores raw rows with an exported model, without distrain.

    python score.py ROWS.jsonl     scores as JSON lines, one for each line of ROWS.jsonl
    python score.py --check        scores the rows in golden.json again, and compares

A copy of this file is in the folder that `distrain export --with-workflow` wrote. It needs NumPy,
and onnxruntime for `model.onnx` or torch for `model.pt2`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from distrain.predict.serving.deltas import VOCABULARIES, DamagedExport as DamagedExport, verified
from distrain.predict.serving.preprocess import BadValue as BadValue, Preprocessor
from distrain.prep.raw_values import Array

PROGRAM, GOLDEN = "program.json", "golden.json"


class Scorer:
    """An exported model, which several threads may use at once.

    Args:
        folder: The folder that `distrain export --with-workflow` wrote.

    Attributes:
        manifest: The content of `manifest.json`.
        preprocessor: Makes the model's inputs from raw rows.
        run: Computes the model's outputs from these inputs: a list with one array per target.

    Raises:
        DamagedExport: A file is missing, was changed, or is from another export; the message names
            the file.
    """

    def __init__(self, folder: str | Path = Path(__file__).parent):
        self.folder = Path(folder)
        self.manifest = verified(self.folder)
        program = json.loads((self.folder / PROGRAM).read_text(encoding="utf-8"))
        self.preprocessor = Preprocessor(program, self.folder / VOCABULARIES)
        open_model = _of_onnx if self.manifest["model"].endswith(".onnx") else _of_torch
        self.run = open_model(self.folder, self.manifest)

    def score(self, rows: Any, form: str | None = None) -> dict[str, Array]:
        """Return the score columns that `distrain predict` writes for these rows, by name.

        They are `[rows]`, except for the probabilities of several classes, `[rows, classes]`.
        Arguments and errors are those of `Preprocessor.inputs`.
        """
        inputs = self.preprocessor.inputs(rows, form)
        targets = self.manifest["targets"]
        if len(inputs["categorical"]):
            of_targets = self.run(inputs)
        else:
            of_targets = [np.zeros(_no_rows(target), np.float32) for target in targets]
        scores_by_name: dict[str, Array] = {}
        for target, scores in zip(targets, of_targets, strict=True):
            scores_by_name |= zip(target["columns"], _columns(target["kind"], scores), strict=True)
        return scores_by_name

    def check(self) -> float:
        """Score the rows in `golden.json` again; return the largest difference from its scores."""
        golden = json.loads((self.folder / GOLDEN).read_text(encoding="utf-8"))
        scores = self.score(decoded(golden["rows"]), golden["form"])
        return largest_difference(scores, golden["scores"])


def largest_difference(actual: Mapping[str, Array], expected: Mapping[str, Any]) -> float:
    """Return the largest value in the result of `differences`, 0 if there is none.

    The result is NaN if a difference is NaN.
    """
    return float(
        np.max([0.0, *(np.max(of, initial=0.0) for of in differences(actual, expected).values())])
    )


def differences(actual: Mapping[str, Array], expected: Mapping[str, Any]) -> dict[str, Array]:
    """Return the absolute differences of probabilities and predictions, by column, `[rows]`.

    A prediction's difference is divided by the prediction's size: the largest of its expected
    absolute value, the 90 % quantile of all expected absolute values, and 1. A prediction close to
    0 is also rounded like larger ones, because it is a sum of float32 numbers of the target's size.
    If both values are NaN, the difference is 0. For the probabilities of several classes, it is the
    largest difference of any class.
    """
    apart = {}
    for name, values in expected.items():
        if name.startswith(("probability", "prediction")):
            one, other = actual[name].astype(np.float64), np.asarray(values, np.float64)
            size = _sizes(other) if name.startswith("prediction") else 1.0
            with np.errstate(invalid="ignore"):
                difference = np.abs(one - other) / size
            is_same = (one == other) | (np.isnan(one) & np.isnan(other))
            difference = np.where(is_same, 0.0, difference)
            apart[name] = difference if one.ndim == 1 else difference.max(axis=1)
    return apart


def _sizes(predictions: Array) -> Array:
    sizes = np.abs(predictions)
    finite = sizes[np.isfinite(sizes)]
    return np.maximum(sizes, max(1.0, np.quantile(finite, 0.9) if len(finite) else 1.0))


def _no_rows(target: Mapping[str, Any]) -> tuple[int, ...]:
    return (0, target["classes"]) if target["kind"] == "multiclass" else (0,)


def _columns(kind: str, scores: Array) -> tuple[Array, ...]:
    if kind == "regression":
        return (scores,)
    if kind == "binary":
        least = np.maximum(scores, np.float32(-700))  # lower scores have probability 0, too
        return scores, (1 / (1 + np.exp(-least.astype(np.float64)))).astype(np.float32)
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores.argmax(axis=1).astype(np.int32), shares / shares.sum(axis=1, keepdims=True)


Run = Callable[[Mapping[str, Array]], list[Array]]


def _of_onnx(folder: Path, manifest: Mapping[str, Any]) -> Run:
    import onnxruntime  # type: ignore[import-untyped, unused-ignore]

    session = onnxruntime.InferenceSession(str(folder / manifest["model"]))
    taken = [one.name for one in session.get_inputs()]
    outputs = [target["output"] for target in manifest["targets"]]
    return lambda inputs: session.run(outputs, {name: inputs[name] for name in taken})


def _of_torch(folder: Path, manifest: Mapping[str, Any]) -> Run:
    import torch

    program = torch.export.load(folder / manifest["model"]).module()

    def run(inputs: Mapping[str, Array]) -> list[Array]:
        with torch.no_grad():
            outputs = program(*(torch.from_numpy(inputs[name]) for name in manifest["inputs"]))
        return [one.numpy() for one in (outputs if isinstance(outputs, tuple) else (outputs,))]

    return run


def encoded(value: Any) -> Any:
    """Return a value of a row as a JSON value, from which `decoded` restores it.

    Times, dates, decimals, float32 and non-finite floats become a mapping from the type's name to a
    text. Mappings and lists are converted recursively; other values are unchanged.
    """
    if isinstance(value, dict):
        return {name: encoded(one) for name, one in value.items()}
    if isinstance(value, list):
        return [encoded(one) for one in value]
    if isinstance(value, np.datetime64 | np.float32 | Decimal):
        return {type(value).__name__: str(value)}
    if isinstance(value, datetime | date):
        return {type(value).__name__: value.isoformat()}
    if isinstance(value, float) and not np.isfinite(value):
        return {"float": str(value)}
    return value


_MAKERS: dict[str, Callable[[str], Any]] = {
    "datetime64": np.datetime64,
    "float32": np.float32,
    "float": float,
    "Decimal": Decimal,
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
}


def decoded(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Return columns of rows, by name, from the JSON values that `encoded` returned for them."""

    def of(value: Any) -> Any:
        if isinstance(value, list):
            return [of(one) for one in value]
        if isinstance(value, dict):
            ((kind, text),) = value.items()
            return _MAKERS[kind](text)
        return value

    return {name: of(values) for name, values in columns.items()}


def main() -> int:
    """Score a file of rows, or check the scores in `golden.json`; return the exit code."""
    parser = argparse.ArgumentParser(description="Score raw rows with the model beside this file.")
    parser.add_argument("rows", nargs="?", help="a file of JSON lines")
    parser.add_argument("--check", action="store_true", help="score the golden rows again")
    args = parser.parse_args()
    if not args.check and args.rows is None:
        parser.error("give a file of rows, or --check")
    try:
        return _check() if args.check else _score_lines(args.rows)
    except (DamagedExport, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _check() -> int:
    scorer = Scorer()
    difference, bound = scorer.check(), scorer.manifest["tolerance"]
    print(f"largest difference {difference:.2e}, at most {bound:g} is allowed")
    return 0 if difference <= bound else 1


def _score_lines(file: str) -> int:
    rows = []
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                rows += [json.loads(line)] if line.strip() else []
            except (ValueError, RecursionError) as error:
                why = getattr(error, "msg", error)
                raise ValueError(f"{file}, line {number}: no JSON: {why}") from None
    scores = {name: values.tolist() for name, values in Scorer().score(rows, "json").items()}
    for scored in zip(*scores.values(), strict=True):
        print(json.dumps(dict(zip(scores, scored, strict=True))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
