"""The outcome of a run as rows of text, for terminals, reports and comparisons; no I/O."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from distrain.formatting import (
    NO_AUC,
    UNKNOWN,
    bounded,
    count,
    duration,
    model_step_text,
    percent,
    score_rows,
)
from distrain.jobs.job_view import steps_of_refit

_SPLITS = {"valid": "validation rows", "train": "training rows, before their update"}


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
        ("saved step", saved),
        ("parameters", count(get("parameters"))),
        ("read by", get("reader") or UNKNOWN),
        ("attempts", count(get("attempts"))),
        ("restarts", count(len(get("restarts") or ()))),
        ("checkpoints", _checkpoints(get("checkpoints") or {})),
    ]


def _stall(by_rank: Sequence[float]) -> str:
    if not by_rank:
        return UNKNOWN
    most = f", max {percent(max(by_rank))}" if len(by_rank) > 1 else ""
    return f"mean {percent(fmean(by_rank))}{most}"


def _scored_on(outcome: Mapping[str, Any]) -> str:
    if not outcome.get("scored_on"):
        return UNKNOWN
    before = ", before the refit" if outcome.get("refit") else ""
    return f"{count(outcome.get('scored_rows'))} {_SPLITS[outcome['scored_on']]}{before}"


def _checkpoints(saved: Mapping[str, Any]) -> str:
    text = count(saved.get("count"))
    return f"{text} written, {count(saved['failed'])} failed" if saved.get("failed") else text
