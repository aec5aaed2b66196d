"""Checks of a machine and of a cluster, each of which says how to mend what it finds."""

from distrain.doctor.cluster import (
    examine_cluster as examine_cluster,
    report_json as report_json,
)
from distrain.doctor.machine import (
    check_machine as check_machine,
    check_scheduler as check_scheduler,
    check_write_access as check_write_access,
)
from distrain.doctor.rapids import check_for_rapids as check_for_rapids
from distrain.doctor.wording import (
    facts_table as facts_table,
    report_lines as report_lines,
)
