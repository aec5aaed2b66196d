"""The verdict on a cluster: all findings of what was seen of it. Pure."""

from distrain.doctor.facts import ClusterSeen
from distrain.doctor.findings import Finding, Severity
from distrain.doctor.on_machines import judge_gpus, judge_limits, judge_memory
from distrain.doctor.on_network import judge_answers, judge_interfaces, judge_links, judge_ports
from distrain.doctor.on_software import (
    judge_clocks,
    judge_data,
    judge_folders,
    judge_versions,
)

CHECKS = (
    judge_answers,
    judge_versions,
    judge_interfaces,
    judge_links,
    judge_folders,
    judge_data,
    judge_clocks,
    judge_gpus,
    judge_memory,
    judge_limits,
    judge_ports,
)


def judge(seen: ClusterSeen) -> list[Finding]:
    """All findings, mistakes first."""
    found = [finding for check in CHECKS for finding in check(seen)]
    return sorted(found, key=lambda finding: finding.severity is not Severity.MISTAKE)
