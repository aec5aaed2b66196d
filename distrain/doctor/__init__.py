"""Checks of a machine and of a cluster, each of which says how to mend what it finds."""

from distrain.doctor.cluster import examine_cluster as examine_cluster
from distrain.doctor.machine import (
    check_for_rapids as check_for_rapids,
    check_machine as check_machine,
    check_scheduler as check_scheduler,
    check_write_access as check_write_access,
)
from distrain.doctor.report import (
    facts_table as facts_table,
    report_json as report_json,
    report_lines as report_lines,
)
