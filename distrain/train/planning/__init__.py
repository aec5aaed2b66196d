"""What a job will need before it starts: memory, placements of tables, steps."""

from distrain.train.planning.fits import check_fits, check_metric
from distrain.train.planning.machine_file import (
    MachineFile,
    given_machines,
    load_machine,
    machine_of,
)
from distrain.train.planning.memory_probe import dense_flops
from distrain.train.planning.plan import JobPlan, plan_job
from distrain.train.planning.scale import Scale, Store, Work, predict
from distrain.train.planning.scale_plan import ScalePlan, plan_scale
from distrain.train.planning.tables_plan import plan_tables, tables_budget_bytes

__all__ = [
    "JobPlan",
    "MachineFile",
    "Scale",
    "ScalePlan",
    "Store",
    "Work",
    "check_fits",
    "check_metric",
    "dense_flops",
    "given_machines",
    "load_machine",
    "machine_of",
    "plan_job",
    "plan_scale",
    "plan_tables",
    "predict",
    "tables_budget_bytes",
]
