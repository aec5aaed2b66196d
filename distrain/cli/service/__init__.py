"""Commands for operators of the job service."""
