"""What a job will need before it starts: memory, placements of tables, steps."""

from distrain.train.planning.fits import check_fits
from distrain.train.planning.plan import JobPlan, plan_job
from distrain.train.planning.tables_plan import plan_tables, tables_budget_bytes

__all__ = ["JobPlan", "check_fits", "plan_job", "plan_tables", "tables_budget_bytes"]
