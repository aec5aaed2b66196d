"""A run's summary as a table, or as JSON."""

from typing import TYPE_CHECKING

from distrain.cli.output import answer, json_wanted, result_console

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from rich.console import Console

    from distrain.report import Summary
    from distrain.run_paths import RunPaths


def tell_outcome(run_dir: "Path", wait: "Callable[[Callable[[Summary], None]], Summary]") -> None:
    """Wait for a run's end, and print its summary.

    Args:
        run_dir: Its files.
        wait: Returns at its end; tells the summary before, also of one that ended badly.

    Raises:
        JobError: It ended badly; with `--json` its summary is printed all the same.
    """
    from distrain.errors import JobError
    from distrain.run_paths import RunPaths

    told: list[Summary] = []
    try:
        summary = wait(told.append)
    except JobError:
        if json_wanted() and told:
            answer(run_dir=str(run_dir), **told[-1].to_json())
        raise
    if json_wanted():
        answer(run_dir=str(run_dir), **summary.to_json())
    else:
        print_summary(result_console(), summary, RunPaths(run_dir))


def print_summary(console: "Console", summary: "Summary", paths: "RunPaths") -> None:
    """Print what came out and where things lie."""
    from rich.table import Table

    table = Table(title=f"run {summary.job_id}", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    what = {"valid": "validation rows", "train": "training rows, before their update"}
    rows = [
        ("ranks", str(summary.num_ranks)),
        *_restarts(summary),
        ("parameters", _count(summary.parameters)),
        ("rows trained", _count(summary.rows)),
        ("rows/s", _count(summary.rows_per_s)),
        ("read by", summary.reader or "-"),
        ("waiting for data", "\n".join(_waiting(summary)) or "-"),
        *_early(summary),
        ("scored on", f"{_count(summary.scored_rows)} {what.get(summary.scored_on or '', '')}"),
        ("AUC", _bounded(summary.auc, summary.auc_bound)),
        ("log loss", _number(summary.log_loss)),
        ("normalised entropy", _number(summary.normalised_entropy)),
        *_checkpoints(summary),
        ("model", f"{paths.model}{_of_step(summary)}" if summary.model else "-"),
        ("curves", str(paths.curves)),
        ("metrics", str(paths.metrics)),
        ("summary", str(paths.summary)),
        ("logs", str(paths.logs)),
    ]
    for name, value in rows:
        table.add_row(name, value)
    console.print(table, highlight=False)


def _restarts(summary: "Summary") -> list[tuple[str, str]]:
    """Nothing, where nothing went wrong."""
    if not summary.restarts:
        return []
    told = [f"{end['reason']} after step {end['step']}" for end in summary.restarts]
    return [("attempts", f"{summary.attempts} ({'; '.join(told)})")]


def _checkpoints(summary: "Summary") -> list[tuple[str, str]]:
    saved = summary.checkpoints
    failed = saved.get("failed", 0)
    if not saved["count"] and not failed:
        return []
    told = f"{saved['count']} written, {failed} failed" if failed else str(saved["count"])
    if saved["count"]:
        stood = f"for which training stood still {saved['stood_still_s']:.2f} s in all"
        told += f", {stood}; the last: {saved['path']}"
    return [("checkpoints", told)]


def _early(summary: "Summary") -> list[tuple[str, str]]:
    told = summary.stopped_early
    if told is None:
        return []
    waited = f"{told['waited']} validations without a better {told['metric']}"
    return [
        (
            "stopped early",
            f"after step {told['step']}: {waited} than that of step {told['best_step']}",
        )
    ]


def _of_step(summary: "Summary") -> str:
    """Nothing for a model of the last step."""
    if summary.model_step in (None, summary.steps):
        return ""
    return f" (of step {summary.model_step}, the best validation)"


def _waiting(summary: "Summary") -> list[str]:
    """A line for each rank: how long it waited for data, and what its loader worked for that."""
    lines = []
    for rank, pct in enumerate(summary.stall_pct):
        line = f"rank {rank}: {pct:.1f} %"
        loader = summary.loader[rank] if rank < len(summary.loader) else {}
        if loader.get("rows"):
            million = loader["rows"] / 1e6
            decode_s, fill_s = loader["decode_s"] / million, loader["fill_s"] / million
            line += f"; decode {decode_s:.2f}, fill {fill_s:.2f} s/M rows"
            line += f"; queue {loader['mean_queue_depth']:.1f}"
        lines.append(line)
    return lines


def _count(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"


def _bounded(value: float | None, bound: float | None) -> str:
    if value is None:
        return "-"
    if not bound:
        return f"{value:.5f} (exact)"
    return f"{value:.5f} (binned; the exact value is within {bound:.1e})"
