"""Commands of whoever operates the job service."""
