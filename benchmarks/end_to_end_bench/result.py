"""Computes figures and goals from the accounts of runs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.end_to_end_bench.notebooks import NOTEBOOKS, Notebook
from benchmarks.end_to_end_bench.rows import Made

MOST_WAITING = 0.05


@dataclass(frozen=True)
class Run:
    """One training that finished.

    Attributes:
        notebook: The notebook that it reproduces.
        way: Name of the variant.
        account: The JSON document that its process printed.
        wall_s: Seconds from start to end of the process.
    """

    notebook: Notebook
    way: str
    account: dict[str, Any]
    wall_s: float

    @property
    def name(self) -> str:
        """Its name in tables and for `--only`."""
        return f"{self.notebook.name}, {self.way}"

    @property
    def rounds(self) -> list[dict[str, Any]]:
        """The timed epochs: all but the first, in which libraries initialise."""
        epochs: list[dict[str, Any]] = self.account["epochs"]
        return epochs[1:]

    @property
    def rows_per_s_of_rounds(self) -> list[float]:
        """The rate of each timed epoch, with or without validation as the notebook counts."""
        if self.notebook.counts_validation:
            return [(e["rows"] + e["valid_rows"]) / e["whole_s"] for e in self.rounds]
        return [e["rows"] / e["train_s"] for e in self.rounds]

    @property
    def rows_per_s(self) -> float:
        """The median rate of the timed epochs."""
        return statistics.median(self.rows_per_s_of_rounds)

    @property
    def waiting_share(self) -> float:
        """Share of training time in which the device waited for rows.

        On a GPU it is measured by the GPU's clock, because the host queues steps and waits for rows
        while the GPU still works.
        """
        clock = "device" if self.account["device_seconds"] else "host"
        waited = sum(e["phases_s"][clock].get("data_wait", 0.0) for e in self.rounds)
        return float(waited / sum(e["train_s"] for e in self.rounds))

    def record(self, made: Made, device: str) -> dict[str, Any]:
        """Return all figures of the run, as JSON values."""
        epochs = self.account["epochs"]
        rows = sum(e["rows"] + e["valid_rows"] * self.notebook.counts_validation for e in epochs)
        auc = epochs[-1]["auc"]
        return {
            "name": self.name,
            "notebook": self.notebook.source,
            "way": self.way,
            "device": device,
            "hardware": self.account["hardware"],
            "rows_per_s": self.rows_per_s,
            "rows_per_s_of_rounds": self.rows_per_s_of_rounds,
            "training_rows_per_s": statistics.median(e["rows"] / e["train_s"] for e in self.rounds),
            "rows_per_s_of_whole_run": rows / self.wall_s,
            "published_rows_per_s": self.notebook.published_rows_per_s,
            "x_published": self.rows_per_s / self.notebook.published_rows_per_s,
            "waiting_share": self.waiting_share,
            "wall_s": self.wall_s,
            "auc": auc,
            "auc_of_bayes": made.bayes_auc,
            "share_of_the_way": (auc - 0.5) / (made.bayes_auc - 0.5) if auc else None,
            **self.account,
        }


def figures(runs: Sequence[Run], device: str) -> dict[str, dict[str, Any]]:
    """Return every figure with its goal. Without a GPU the goals are listed as not met."""
    made: dict[str, dict[str, Any]] = {}
    for notebook in NOTEBOOKS:
        own = [run for run in runs if run.notebook == notebook]
        best = max(own, key=lambda run: run.rows_per_s, default=None)
        made[f"{notebook.name}_rows_per_s"] = figure(
            best.rows_per_s if best else None, f">= {notebook.goal_rows_per_s:g}", device, best
        )
        made[f"{notebook.name}_waiting_share"] = figure(
            best.waiting_share if best else None, f"< {MOST_WAITING:g}", device, best
        )
        syncs = [run.account["host_syncs_per_step"] for run in own]
        told = [value for value in syncs if value is not None]
        made[f"{notebook.name}_host_syncs_per_step"] = figure(
            max(told, default=None), "== 0", device, None
        )
    return made


def figure(value: float | None, goal: str, device: str, of: Run | None) -> dict[str, Any]:
    """Return a value with its goal.

    >>> figure(0.01, "< 0.05", "cuda", None)["met"], figure(0.01, "< 0.05", "cpu", None)["met"]
    (True, False)
    >>> figure(None, "== 0", "cpu", None)["why"]
    'no GPU'
    """
    sign, bound = goal.split()
    told: dict[str, Any] = {"value": value, "goal": goal}
    if of is not None:
        told["of"] = of.way
    if device != "cuda":
        return told | {"met": False, "why": "no GPU"}
    if value is None:
        return told | {"met": False, "why": "not measured"}
    limit = float(bound)
    return told | {"met": {">=": value >= limit, "<": value < limit, "==": value == limit}[sign]}


def print_heads(device: str) -> None:
    """Print the table's header."""
    where = "on a GPU" if device == "cuda" else "on this CPU; the published ones are a GPU's"
    print(
        f"{where:44}{'rows/s':>12}{'x publ.':>9}{'whole run':>12}{'waiting':>9}{'syncs':>7}"
        f"{'GPU GB':>8}{'start s':>9}{'AUC':>8}  seconds of an epoch by phase",
        flush=True,
    )


def print_run(record: dict[str, Any]) -> None:
    """Print the table's line of a run."""
    clock = "device" if record["device_seconds"] else "host"
    phases = record["epochs"][-1]["phases_s"][clock]
    told = ", ".join(f"{name} {s:.3g}" for name, s in phases.items() if s >= 0.001)
    syncs = record["host_syncs_per_step"]
    print(
        f"{record['name']:44}{record['rows_per_s']:>12,.0f}{record['x_published']:>9.2f}"
        f"{record['rows_per_s_of_whole_run']:>12,.0f}{record['waiting_share']:>9.1%}"
        f"{'n/a' if syncs is None else f'{syncs:g}':>7}"
        f"{record['peak_memory']['device_bytes'] / 1e9:>8.2f}"
        f"{record['imports_and_set_up_s']:>9.1f}{record['auc']:>8.4f}  {told}",
        flush=True,
    )


def rounded(value: Any) -> Any:
    """Round floats to five significant digits, also in lists and dictionaries."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    return {k: rounded(v) for k, v in value.items()} if isinstance(value, dict) else value
