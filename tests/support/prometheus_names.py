"""The metrics on the `/metrics` of schedulers and services, and how tests read them."""

from prometheus_client.parser import text_string_to_metric_families

# Dashboards and alert rules of others go by these names: add to them, never change them.
NAMES = {
    "distrain_jobs": {"state"},
    "distrain_jobs_longest_pending_seconds": set(),
    "distrain_job_info": {"job_id", "name"},
    "distrain_job_state": {"job_id", "state"},
    "distrain_job_ended_timestamp_seconds": {"job_id", "state", "reason"},
    "distrain_job_progress_timestamp_seconds": {"job_id"},
    "distrain_job_ranks": {"job_id"},
    "distrain_job_restarts_total": {"job_id"},
    "distrain_job_checkpoints_total": {"job_id"},
    "distrain_job_checkpoint_write_seconds_total": {"job_id"},
    "distrain_job_checkpoint_stall_seconds_total": {"job_id"},
    "distrain_job_checkpoint_bytes": {"job_id"},
    "distrain_job_checkpoint_timestamp_seconds": {"job_id"},
    "distrain_job_rows_total": {"job_id"},
    "distrain_job_rows_per_second": {"job_id"},
    "distrain_job_steps_done": {"job_id"},
    "distrain_job_steps_planned": {"job_id"},
    "distrain_job_eta_seconds": {"job_id"},
    "distrain_job_loss_nats": {"job_id", "split"},
    "distrain_job_auc_ratio": {"job_id", "split"},
    "distrain_job_auc_bound_ratio": {"job_id", "split"},
    "distrain_job_target_score": {"job_id", "split", "target", "metric"},
    "distrain_job_phase_seconds_total": {"job_id", "phase"},
    "distrain_job_step_duration_seconds_bucket": {"job_id", "le"},
    "distrain_job_step_duration_seconds_count": {"job_id"},
    "distrain_job_step_duration_seconds_sum": {"job_id"},
    "distrain_rank_step_duration_seconds": {"job_id", "rank"},
    "distrain_rank_rows_per_second": {"job_id", "rank"},
    "distrain_rank_data_wait_ratio": {"job_id", "rank"},
    "distrain_rank_memory_bytes": {"job_id", "rank", "kind"},
    "distrain_rank_gpu_utilisation_ratio": {"job_id", "rank"},
    "distrain_rank_gpu_memory_used_bytes": {"job_id", "rank"},
    "distrain_rank_gpu_memory_total_bytes": {"job_id", "rank"},
    "distrain_certificate_end_timestamp_seconds": {"certificate"},
}
"""Labels by name."""

SERVICE_NAMES = {
    "distrain_service_requests_total": {"process", "route", "method", "code"},
    "distrain_service_request_duration_seconds_bucket": {"process", "route", "le"},
    "distrain_service_request_duration_seconds_count": {"process", "route"},
    "distrain_service_request_duration_seconds_sum": {"process", "route"},
    "distrain_service_streams": {"process"},
    "distrain_service_database_up": set(),
    "distrain_service_ready": set(),
    "distrain_service_jobs": {"phase", "state"},
    "distrain_service_jobs_ended_last_hour": {"state"},
    "distrain_service_longest_queued_seconds": set(),
    "distrain_service_last_event": set(),
    "distrain_service_reconcile_lag_seconds": set(),
    "distrain_service_cluster_report_age_seconds": {"cluster"},
    "distrain_service_events_lag_seconds": set(),
    "distrain_service_cluster_silence_seconds": {"cluster", "kind"},
    "distrain_service_cluster_jobs": {"cluster"},
    "distrain_service_cluster_workers": {"cluster", "state"},
    "distrain_service_backup_timestamp_seconds": set(),
    "distrain_service_certificate_end_timestamp_seconds": {"certificate"},
}
"""The same of a job service."""

Samples = dict[str, dict[tuple[str, ...], float]]
"""Values by name, then by the labels' values in the order of the labels' names."""


def samples_of(text: str, names: dict[str, set[str]]) -> Samples:
    """Return the samples of our metrics, each of which has the labels that belong to its name."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith("distrain_") and not sample.name.endswith("_created"):
                labels = tuple(value for _, value in sorted(sample.labels.items()))
                assert labels not in found.setdefault(sample.name, {}), "twice"
                found[sample.name][labels] = sample.value
                assert set(sample.labels) == names[sample.name]
    return found
