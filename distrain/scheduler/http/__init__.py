"""HTTP routes of the scheduler: jobs, commands, metrics, Prometheus."""
