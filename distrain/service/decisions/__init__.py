"""Decides the service's next steps for jobs and clusters: pure functions of observations."""
