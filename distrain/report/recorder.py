"""Keeps a run directory up to date while its job runs."""

import json
from dataclasses import asdict
from pathlib import Path

import yaml

from distrain.coordinator.view import JobView, Record
from distrain.errors import OutputError
from distrain.report.curves import draw_curves
from distrain.report.summary import Summary, summarise
from distrain.run_paths import RunPaths
from distrain.spec import JobSpec
from distrain.storage import check_writable, translated_errors, whole_file


def open_run(root: Path, spec: JobSpec) -> "RunRecorder":
    """Make a run directory and write the resolved spec to it.

    Raises:
        OutputError: It holds a run already, or cannot be written.
    """
    paths = RunPaths(root)
    check_writable(root)
    if paths.spec.exists():
        raise OutputError(
            "the run directory holds a run already",
            where={"path": str(root)},
            hint="Choose another --run-dir, or remove that one.",
        )
    document = spec.model_dump(mode="json")
    with whole_file(paths.spec) as partial:
        partial.write_text(yaml.safe_dump(document, sort_keys=False))
    return RunRecorder(paths)


class RunRecorder:
    """Writes records as they come, and summary and curves at the end.

    `metrics.jsonl` grows line by line, each written in one piece; the other files appear whole.
    """

    def __init__(self, paths: RunPaths):
        self.paths = paths
        self.records: list[Record] = []

    def add(self, view: JobView) -> None:
        """Take in the records that are new in a view.

        Raises:
            OutputError: Their lines could not be written; none of them was.
        """
        if not view.records:
            return
        self.records += view.records
        lines = "".join(json.dumps(asdict(record)) + "\n" for record in view.records)
        with translated_errors(self.paths.metrics):
            _append(self.paths.metrics, lines.encode())

    def finish(self, view: JobView) -> Summary:
        """Write the summary and the curves.

        Raises:
            OutputError: One could not be written; it is not there.
        """
        summary = summarise(view, self.records)
        with whole_file(self.paths.summary) as partial:
            partial.write_text(json.dumps(summary.to_json(), indent=2) + "\n")
        if self.records:
            with whole_file(self.paths.curves) as partial:
                draw_curves(self.records, view.name, partial)
        return summary


def _append(path: Path, data: bytes) -> None:
    """Append all of `data`, or nothing."""
    with path.open("ab", buffering=0) as file:
        size_bytes = file.tell()
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(size_bytes)  # a full disk takes half a line
            raise
