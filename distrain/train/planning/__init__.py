"""What a job will need before it starts: memory, placements of tables, steps."""

from distrain.train.planning.machine_file import (
    MachineFile as MachineFile,
    load_machine as load_machine,
    machine_of as machine_of,
)
from distrain.train.planning.memory_probe import dense_flops as dense_flops
from distrain.train.planning.plan import JobPlan as JobPlan, plan_job as plan_job
from distrain.train.planning.scale import Work as Work, predict as predict
from distrain.train.planning.scale_plan import ScalePlan as ScalePlan, plan_scale as plan_scale
from distrain.train.planning.tables_plan import (
    check_fits as check_fits,
    check_metric as check_metric,
    inits_of as inits_of,
    plan_tables as plan_tables,
    tables_budget_bytes as tables_budget_bytes,
)
