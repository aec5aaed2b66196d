"""Checks of a machine and of a cluster, each of which says how to mend what it finds."""

from distrain.doctor.cluster import Report, examine_cluster, report_json
from distrain.doctor.findings import Finding, Severity
from distrain.doctor.machine import (
    Check,
    Verdict,
    check_machine,
    check_scheduler,
    check_write_access,
)
from distrain.doctor.rapids import check_for_rapids
from distrain.doctor.wording import facts_table, report_lines, verdict_line

__all__ = [
    "Check",
    "Finding",
    "Report",
    "Severity",
    "Verdict",
    "check_for_rapids",
    "check_machine",
    "check_scheduler",
    "check_write_access",
    "examine_cluster",
    "facts_table",
    "report_json",
    "report_lines",
    "verdict_line",
]
