"""Shared by the Criteo examples: options, generated data, and printing of results."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

CLICK_RATE = 0.25
"""The click rate of generated rows; models learn faster than with Criteo's 3 %."""


@dataclass(frozen=True)
class Criteo:
    """Prepared data and the output folder.

    Attributes:
        train: Training parquet.
        valid: Validation parquet.
        work: The folder for the example's output.
        best_auc: The best possible AUC on the validation rows; `None` for real rows.
    """

    train: Path
    valid: Path
    work: Path
    best_auc: float | None


def options(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options of all examples."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="use few rows")
    parser.add_argument(
        "--data",
        type=Path,
        help="a folder with train/ and valid/ from `distrain prep`; default: generated rows",
    )
    parser.add_argument(
        "--work", type=Path, default=Path("runs/examples"), help="the folder for all output"
    )
    parser.add_argument("--batch-size", type=int, help="rows per step")
    parser.add_argument("--epochs", type=int, help="passes over the training rows")
    return parser


def criteo(args: argparse.Namespace, rows: int, valid_rows: int) -> Criteo:
    """Return the data of `--data`, or rows generated once into the work folder."""
    args.work.mkdir(parents=True, exist_ok=True)
    if args.data is not None:
        return Criteo(args.data / "train", args.data / "valid", args.work, None)
    raw, data = (args.work / f"criteo-{rows}-{name}" for name in ("raw", "data"))
    if not raw.exists():
        distrain("synth", "--rows", rows, "--valid-rows", valid_rows, "--click-rate", CLICK_RATE,
                 "--out", raw)  # fmt: skip
    if not data.exists():
        distrain("prep", raw / "train-*.tsv", "--valid", raw / "valid-*.tsv", "--out", data)
    planted = json.loads((raw / "planted.json").read_text())
    best = planted["splits"]["valid"]["bayes_auc"]
    return Criteo(data / "train", data / "valid", args.work, best)


def distrain(*words: object, read: bool = False) -> str:
    """Print and run a distrain command; with `read`, return its output.

    Raises:
        SystemExit: The command failed; it has printed the reason.
    """
    text = [str(word) for word in words]
    print(f"$ distrain {shlex.join(text)}", flush=True)
    command = [sys.executable, "-m", "distrain", *text]
    out = subprocess.PIPE if read else None
    ran = subprocess.run(command, stdout=out, text=True, check=False)
    if ran.returncode:
        raise SystemExit(ran.returncode)
    return ran.stdout or ""


def tell(result: dict[str, float | int | str], best_auc: float | None) -> None:
    """Print the results, and the same as JSON on the last line."""
    if best_auc is not None:
        result["best_auc"] = best_auc
        result["share_of_the_way"] = (float(result["auc"]) - 0.5) / (best_auc - 0.5)
    for name, value in result.items():
        print(f"{name.replace('_', ' '):<20} {value:,.4f}" if isinstance(value, float) else
              f"{name.replace('_', ' '):<20} {value}")  # fmt: skip
    print(json.dumps(result))
