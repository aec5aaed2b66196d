"""Prints how to follow a job, and the summary of a job that has ended."""

import os
from collections.abc import Mapping
from shlex import quote
from typing import TYPE_CHECKING

from distrain.cli.options import SCHEDULER_VARIABLE
from distrain.cli.output import json_wanted, print_answer, print_remark, result_console, table_of
from distrain.errors import JobError
from distrain.formatting import (
    NO_AUC,
    UNKNOWN,
    count,
    duration,
    kept_step,
    number,
    percent,
    score_rows,
)
from distrain.jobs.job_view import steps_of_refit
from distrain.jobs.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from distrain.runs.summary import Summary


def how_to_follow(job_id: str, scheduler: str, environment: Mapping[str, str] = os.environ) -> str:
    at = "" if environment.get(SCHEDULER_VARIABLE) == scheduler else f" --scheduler {scheduler}"
    return f"follow it: distrain attach {job_id}{at}; stop it: distrain cancel {job_id}{at}"


def print_outcome(run_dir: "Path", wait: "Callable[[Callable[[Summary], None]], Summary]") -> None:
    """Wait for a run's end and print its summary; with `--json` also that of a failed run.

    `wait` waits for the run's end and calls its argument with the summary. Then it returns the
    summary, or raises the job's error.
    """
    summaries: list[Summary] = []
    try:
        summary = wait(summaries.append)
    except JobError:
        if json_wanted() and summaries:
            print_answer(run_dir=str(run_dir), **summaries[-1].to_json())
        raise
    if json_wanted():
        print_answer(run_dir=str(run_dir), **summary.to_json())
    else:
        print_summary(result_console(), summary, RunPaths(run_dir))
        print_remark(f"next: distrain report {quote(str(run_dir))}")


def print_summary(console: "Console", summary: "Summary", paths: "RunPaths") -> None:
    valid = "validation rows" + (", before the refit" if summary.refit else "")
    row_kinds = {"valid": valid, "train": "training rows, before their update"}
    rows = [
        ("scored on", f"{count(summary.scored_rows)} {row_kinds.get(summary.scored_on or '', '')}"),
        *_scores(summary),
        *_early(summary),
        ("duration", duration(summary.wall_s, 0)),
        ("rows trained", count(summary.rows)),
        ("rows/s", count(summary.rows_per_s)),
        ("waiting for data", "\n".join(_waiting(summary)) or "-"),
        ("ranks", str(summary.num_ranks)),
        *_restarts(summary),
        ("parameters", count(summary.parameters)),
        ("read by", summary.reader or "-"),
        *_checkpoints(summary),
        ("model", f"{paths.model}{_of_step(summary)}" if summary.model else "-"),
        ("curves", str(paths.curves)),
        ("records", str(paths.records)),
        ("summary", str(paths.summary)),
        ("logs", str(paths.logs)),
    ]
    title = f"{summary.job_id}: {summary.state}"
    columns = [("figure", {"style": "bold"}), ("value", {})]
    table = table_of(columns, rows, title=title, show_header=False, title_justify="left")
    console.print(table, highlight=False)


def _restarts(summary: "Summary") -> list[tuple[str, str]]:
    if not summary.restarts:
        return []
    ends = [f"{end['reason']} after step {end['step']}" for end in summary.restarts]
    return [("attempts", f"{summary.attempts} ({'; '.join(ends)})")]


def _checkpoints(summary: "Summary") -> list[tuple[str, str]]:
    saved = summary.checkpoints
    failed = saved.get("failed", 0)
    if not saved["count"] and not failed:
        return []
    text = f"{saved['count']} written, {failed} failed" if failed else str(saved["count"])
    if saved["count"]:
        text += f", which paused training for {saved['stood_still_s']:.2f} s in total"
        text += f"; the last: {saved['path']}"
    return [("checkpoints", text)]


def _early(summary: "Summary") -> list[tuple[str, str]]:
    stop = summary.stopped_early
    if stop is None:
        return []
    waited = f"{stop['waited']} validations without a better {stop['metric']}"
    text = f"after step {stop['step']}: {waited} than that of step {stop['best_step']}"
    return [("stopped early", text)]


def _of_step(summary: "Summary") -> str:
    if summary.model_step in (None, summary.steps):
        return ""
    is_early, refit_steps = summary.stopped_early is not None, steps_of_refit(summary.refit)
    kept = kept_step(
        summary.model_step, summary.steps, stopped_early=is_early, refit_steps=refit_steps
    )
    return f" ({kept})"


def _waiting(summary: "Summary") -> list[str]:
    """Return a line per rank: its share of time waiting for data, and its loader's times."""
    lines = []
    for rank, pct in enumerate(summary.stall_pct):
        line = f"rank {rank}: {percent(pct)}"
        loader = summary.loader[rank] if rank < len(summary.loader) else {}
        if loader.get("rows"):
            million = loader["rows"] / 1e6
            decode_s, fill_s = loader["decode_s"] / million, loader["fill_s"] / million
            line += f"; {decode_s:.2f} s to decode and {fill_s:.2f} s to fill a million rows"
            line += f"; {loader['mean_queue_depth']:.1f} batches ready on average"
        lines.append(line)
    return lines


def _scores(summary: "Summary") -> list[tuple[str, str]]:
    figures = (summary.log_loss, summary.normalised_entropy, summary.targets, summary.own)
    return score_rows(_auc(summary), *figures)


def _auc(summary: "Summary") -> str:
    value, bound = summary.auc, summary.auc_bound
    if value is None:
        return NO_AUC if summary.scored_rows else UNKNOWN
    how = f"binned; the exact value is within {bound:.1e}" if bound else "exact"
    return f"{number(value)} ({how})"
