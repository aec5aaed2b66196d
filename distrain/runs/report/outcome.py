"""The outcome of a run as rows of text, for terminals, reports and comparisons; no I/O."""

from collections.abc import Mapping, Sequence
from math import log, log1p, sqrt
from statistics import fmean
from typing import Any

from distrain.formatting import (
    NO_AUC,
    UNKNOWN,
    bounded,
    count,
    duration,
    main_metrics,
    model_step_text,
    percent,
    score_rows,
)
from distrain.jobs.job_view import steps_of_refit

SCORED_ROWS = {"valid": "validation rows", "train": "training rows, before their update"}


def outcome_rows(outcome: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return rows (name, text) of a run's outcome, from the fields of its summary.

    Fields may be missing; their texts are `-`, or the rows are left out.
    """
    get = outcome.get
    is_undefined = get("auc") is None and get("scored_rows")
    auc = NO_AUC if is_undefined else bounded(get("auc"), get("auc_bound"))
    figures = (get("log_loss"), get("normalised_entropy"), get("targets"), get("own"))
    saved = model_step_text(
        get("model_step"),
        get("steps"),
        stopped_early=get("stopped_early") is not None,
        refit_steps=steps_of_refit(get("refit")),
    )
    return [
        ("ranks", count(get("num_ranks"))),
        ("steps", count(get("steps"))),
        ("rows trained", count(get("rows"))),
        ("training time", duration(get("wall_s"))),
        ("rows/s", count(get("rows_per_s"))),
        ("waiting for data", _stall(get("stall_pct") or ())),
        ("scored on", _scored_on(outcome)),
        *score_rows(auc, *figures),
        *_test(get("test")),
        ("saved step", saved),
        ("parameters", count(get("parameters"))),
        ("read by", get("reader") or UNKNOWN),
        ("attempts", count(get("attempts"))),
        ("restarts", count(len(get("restarts") or ()))),
        ("checkpoints", _checkpoints(get("checkpoints") or {})),
    ]


def _test(test: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Return the row about the final evaluation on test rows; none without such rows."""
    if test is None:
        return []
    of_targets = "; ".join(" ".join(words) for words in main_metrics(test.get("targets")))
    return [("test", f"{of_targets} on {count(test.get('rows'))} rows")]


def _stall(by_rank: Sequence[float]) -> str:
    if not by_rank:
        return UNKNOWN
    most = f", max {percent(max(by_rank))}" if len(by_rank) > 1 else ""
    return f"mean {percent(fmean(by_rank))}{most}"


def _scored_on(outcome: Mapping[str, Any]) -> str:
    if not outcome.get("scored_on"):
        return UNKNOWN
    before = ", before the refit" if outcome.get("refit") else ""
    error = error_of_score(outcome)
    few = f"; the {error[0]} has a standard error of {error[1]:.2g}" if error else ""
    return f"{count(outcome.get('scored_rows'))} {SCORED_ROWS[outcome['scored_on']]}{before}{few}"


def error_of_score(outcome: Mapping[str, Any]) -> tuple[str, float] | None:
    """Return the main metric's name and its standard error, if it was scored on few rows.

    Few are under 1,000, or under 100 of the rarer of two classes. `None` for more rows, for a
    regression, and if the metric is undefined.

    The error of an AUC is that of Hanley and McNeil, "The Meaning and Use of the Area under a
    Receiver Operating Characteristic (ROC) Curve" (1982), for the class that makes it larger. A
    perfect score counts as half a mistake, because its error is not 0 on a few rows.
    """
    rows, auc = outcome.get("scored_rows") or 0, outcome.get("auc")
    if auc is not None and outcome.get("normalised_entropy"):
        rarer = rows * _rarer_share(outcome["log_loss"] / outcome["normalised_entropy"])
        if rarer < 1 or (rows >= _FEW_ROWS and rarer >= _FEW_OF_CLASS):
            return None
        sizes, auc = (rarer, rows - rarer), _imperfect(auc, rarer)
        return "AUC", sqrt(max(_auc_variance(auc, *sizes), _auc_variance(auc, *sizes[::-1])))
    first: Mapping[str, Any] = next(iter((outcome.get("targets") or {}).values()), {})
    accuracy = first.get("accuracy")
    if auc is not None or accuracy is None or not 0 < rows < _FEW_ROWS:
        return None
    accuracy = _imperfect(accuracy, rows)
    return "accuracy", sqrt(accuracy * (1 - accuracy) / rows)


def _imperfect(share: float, rows: float) -> float:
    return min(max(share, 0.5 / rows), 1 - 0.5 / rows)


_FEW_ROWS, _FEW_OF_CLASS = 1_000, 100


def _auc_variance(auc: float, positives: float, negatives: float) -> float:
    pairs = auc * (1 - auc)
    pairs += (positives - 1) * (auc / (2 - auc) - auc**2)
    pairs += (negatives - 1) * (2 * auc**2 / (1 + auc) - auc**2)
    return pairs / (positives * negatives)


def _rarer_share(entropy: float) -> float:
    """Return the share of the rarer of two classes, given the entropy of the class in nats."""
    low, high = 0.0, 0.5
    for _ in range(50):
        middle = (low + high) / 2
        of_middle = -middle * log(middle) - (1 - middle) * log1p(-middle)
        low, high = (middle, high) if of_middle < entropy else (low, middle)
    return high


def _checkpoints(saved: Mapping[str, Any]) -> str:
    text = count(saved.get("count"))
    return f"{text} written, {count(saved['failed'])} failed" if saved.get("failed") else text
