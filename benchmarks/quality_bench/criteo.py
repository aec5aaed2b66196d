"""Measures distrain's commands, an ensemble and peers on three folds of a file in Criteo's format.

A hash of a row's text selects its fold. Each fold is the test set of models that are trained on the
other two. Another hash gives the order of the training rows, so equal files give equal folds.
"""

import ctypes
import gzip
import hashlib
import json
import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

FOLDS = 3
PEERS = Path(__file__).parent / "peers.py"
MEAN = "mean"
_PR_SET_CHILD_SUBREAPER = 36  # of <sys/prctl.h>

Record = dict[str, str | int | float]


def measured(
    text: Path, folder: Path, path: Sequence[Sequence[str]], seeds: int, peers: str | None
) -> Iterator[Record]:
    """Yield a record for each fold and model: AUC, log loss, and CPU seconds of its training.

    Args:
        text: Lines with Criteo's 40 fields, perhaps compressed by gzip.
        path: The commands before `train`, which make `job.yaml` of `train.tsv`.
        seeds: Runs of the ensemble; distrain's own record is the mean of these runs.
        peers: A Python with pandas, scikit-learn and LightGBM; `None` leaves peers out.
    """
    for fold, (train, test) in enumerate(folds(text)):
        place = folder / f"fold-{fold}"
        place.mkdir()
        (place / "train.tsv").write_bytes(b"".join(train))
        (place / "test.tsv").write_bytes(b"".join(test))
        for record in (*own(place, path, seeds), *of_peers(place, peers)):
            yield {"fold": fold, "rows": len(train), **record}


def folds(text: Path) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Yield the training and test lines of each fold."""
    with gzip.open(text) if text.suffix == ".gz" else text.open("rb") as file:
        lines = file.readlines()
    of_line = np.array([_hash(b"fold", line) % FOLDS for line in lines])
    for fold in range(FOLDS):
        train = [line for line, other in zip(lines, of_line, strict=True) if other != fold]
        train.sort(key=lambda line: _hash(b"order", line))
        yield train, [line for line, own in zip(lines, of_line, strict=True) if own == fold]


def _hash(purpose: bytes, line: bytes) -> int:
    return int.from_bytes(hashlib.sha256(purpose + line).digest(), "big")


def own(place: Path, path: Sequence[Sequence[str]], seeds: int) -> Iterator[Record]:
    prepared = sum(_cpu_s(place, command) for command in path)
    asked = ["ensemble", "job.yaml", "--seeds", str(seeds), "--out", MEAN]
    cpu_s = _cpu_s(place, asked)
    runs = sorted((place / f"{MEAN}-runs").glob("seed-*"))
    for run in runs:
        one: Record = {"model": "distrain", "cpu_s": prepared + cpu_s / seeds}
        yield one | scores(run, place / "test.tsv")
    whole: Record = {"model": f"distrain, mean of {seeds} seeds", "cpu_s": prepared + cpu_s}
    yield whole | scores(place / MEAN, place / "test.tsv")


def _cpu_s(place: Path, words: Sequence[str]) -> float:
    """Run a command; return the CPU seconds of it and of all processes that it started."""
    # Workers of a local cluster outlive their parents, and are counted only if they are waited for.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [str(Path(sys.executable).parent / "distrain"), *words]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    with suppress(ChildProcessError):
        while True:
            os.wait()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def scores(run: Path, test: Path) -> Record:
    from sklearn.metrics import log_loss, roc_auc_score

    import distrain

    label = np.array([line[:1] == b"1" for line in test.read_bytes().splitlines()])
    probability = distrain.load(run).predict(str(test))["probability"].to_numpy(np.float64)
    return {
        "auc": float(roc_auc_score(label, probability)),
        "log_loss": float(log_loss(label, probability)),
    }


def of_peers(place: Path, peers: str | None) -> Iterator[Record]:
    if peers is not None:
        words = [peers, str(PEERS), "criteo", str(place)]
        done = subprocess.run(words, check=True, capture_output=True, text=True)
        yield from map(json.loads, done.stdout.splitlines())


def table_of(records: list[Record]) -> Iterator[str]:
    """Yield the lines of a table: each model's means over folds and seeds."""
    folds_of = [f"fold {fold}" for fold in range(FOLDS)]
    yield f"| model | {' | '.join(folds_of)} | AUC, mean | log loss, mean | CPU s |"
    yield f"|---|{'--:|' * (FOLDS + 3)}"
    for model in dict.fromkeys(record["model"] for record in records):
        its = [record for record in records if record["model"] == model]

        def mean(figure: str, of: list[Record]) -> float:
            return float(np.mean([float(one[figure]) for one in of]))

        by_fold = [[one for one in its if one["fold"] == fold] for fold in range(FOLDS)]
        cells = [f"{mean('auc', of):.4f}" if of else "" for of in by_fold]
        cells += [f"{mean('auc', its):.4f}", f"{mean('log_loss', its):.4f}"]
        yield f"| {model} | {' | '.join(cells)} | {mean('cpu_s', its):.0f} |"
