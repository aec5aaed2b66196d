"""The metrics of jobs on a scheduler's `/metrics`."""

# Dashboards and alert rules of others go by these names: add to them, never change them.
NAMES = {
    "distrain_jobs": {"state"},
    "distrain_job_info": {"job_id", "name"},
    "distrain_job_state": {"job_id", "state"},
    "distrain_job_ended_timestamp_seconds": {"job_id", "state", "reason"},
    "distrain_job_progress_timestamp_seconds": {"job_id"},
    "distrain_job_ranks": {"job_id"},
    "distrain_job_restarts_total": {"job_id"},
    "distrain_job_checkpoints_total": {"job_id"},
    "distrain_job_rows_total": {"job_id"},
    "distrain_job_rows_per_second": {"job_id"},
    "distrain_job_steps_done": {"job_id"},
    "distrain_job_steps_planned": {"job_id"},
    "distrain_job_loss_nats": {"job_id", "split"},
    "distrain_job_auc_ratio": {"job_id", "split"},
    "distrain_job_auc_bound_ratio": {"job_id", "split"},
    "distrain_job_phase_seconds_total": {"job_id", "phase"},
    "distrain_job_step_duration_seconds_bucket": {"job_id", "le"},
    "distrain_job_step_duration_seconds_count": {"job_id"},
    "distrain_job_step_duration_seconds_sum": {"job_id"},
    "distrain_rank_step_duration_seconds": {"job_id", "rank"},
    "distrain_rank_rows_per_second": {"job_id", "rank"},
    "distrain_rank_data_wait_ratio": {"job_id", "rank"},
}
"""Labels by name."""
