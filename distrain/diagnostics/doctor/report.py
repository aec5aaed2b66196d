"""Reports on a cluster as text and as JSON; no I/O."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from distrain.diagnostics.doctor.facts import (
    ClusterFacts,
    Finding,
    ProcessFacts,
    ProcessPlace,
    ProcessRole,
    Severity,
)
from distrain.diagnostics.doctor.machine_verdicts import (
    judge_folders,
    judge_gpus,
    judge_versions,
)
from distrain.diagnostics.doctor.network_verdicts import (
    judge_answers,
    judge_links,
)
from distrain.diagnostics.doctor.process_rules import judge_processes
from distrain.formatting import byte_size

CHECKS = (
    judge_answers,
    judge_versions,
    judge_processes,
    judge_links,
    judge_folders,
    judge_gpus,
)


def judge(seen: ClusterFacts) -> list[Finding]:
    """Return the findings of all checks, mistakes first."""
    findings = [finding for check in CHECKS for finding in check(seen)]
    return sorted(findings, key=lambda finding: finding.severity is not Severity.MISTAKE)


@dataclass(frozen=True)
class Report:
    """The facts collected about a cluster, and the findings, mistakes first."""

    seen: ClusterFacts
    findings: tuple[Finding, ...]

    @property
    def mistakes(self) -> int:
        """The number of findings that are mistakes."""
        return sum(finding.severity is Severity.MISTAKE for finding in self.findings)


_MARKS = {Severity.MISTAKE: "FAIL", Severity.WARNING: "note"}


def verdict_line(report: Report) -> str:
    counts = Counter(str(finding.severity) for finding in report.findings)
    text = ", ".join(_counted(counts[word], word) for word in counts) or "no findings"
    everywhere = {*report.seen.facts, *report.seen.silent}
    workers = sum(place.role is ProcessRole.WORKER for place in everywhere)
    return f"cluster: {text} on {_counted(workers, 'worker')}"


def report_lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report.

    These are the verdict, the findings with corrections, and the checks that were not made.
    """
    yield verdict_line(report)
    for finding in report.findings:
        where = ", ".join(map(str, finding.places))
        yield f"{_MARKS[finding.severity]}  {finding.check}: {where}"
        yield f"      {finding.fault}"
        yield f"   -> {finding.mend}"
    yield from _not_looked_at(report.seen)


def _not_looked_at(seen: ClusterFacts) -> Iterator[str]:
    if not seen.run_root:
        yield "not checked: whether all workers share a folder of runs; set it with --run-root"
    hosts = {facts.network for facts in seen.of(ProcessRole.WORKER).values()}
    if len(hosts) == 1:
        yield "not checked: connections between hosts; all workers are on one host"


HEADINGS = (
    "process", "host", "python", "distrain", "torch", "interface", "ranks' address",
    "/dev/shm", "free memory", "first GPU", "run root on",
)  # fmt: skip


def facts_table(seen: ClusterFacts) -> list[tuple[str, ...]]:
    return [HEADINGS, *(_row(seen, place, facts) for place, facts in sorted(seen.facts.items()))]


def _row(seen: ClusterFacts, place: ProcessPlace, facts: ProcessFacts) -> tuple[str, ...]:
    is_worker = place.role is ProcessRole.WORKER
    folder = seen.folders.get(place)
    return (
        place.name or place.address if is_worker else str(place.role),
        facts.hostname,
        facts.python,
        facts.versions.get("distrain", ""),
        facts.versions.get("torch", ""),
        facts.interface if is_worker else "",
        facts.rank_address if is_worker else "",
        byte_size(facts.shm_bytes),
        byte_size(facts.available_bytes),
        facts.first_gpu or "-",
        folder.filesystem if folder else "-",
    )


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")


def report_json(report: Report) -> dict[str, Any]:
    seen = report.seen
    warnings = len(report.findings) - report.mistakes
    return {
        "scheduler": seen.scheduler,
        "mistakes": report.mistakes,
        "warnings": warnings,
        "findings": [asdict(finding) for finding in report.findings],
        "processes": [
            {
                **asdict(place),
                "facts": asdict(facts),
                "run_root": asdict(folder) if (folder := seen.folders.get(place)) else None,
            }
            for place, facts in sorted(seen.facts.items())
        ],
        "connections": [asdict(link) for link in seen.links],
    }
