"""The rights of callers: tokens and sessions, roles, and the limits of job specs."""
