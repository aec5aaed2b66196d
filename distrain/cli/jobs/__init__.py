"""Commands that give jobs to a scheduler or a service, show them, follow them and stop them."""

from distrain.cli.jobs.place import READ_S, at, server_of_run, server_option, service_at, teller

__all__ = ["READ_S", "at", "server_of_run", "server_option", "service_at", "teller"]
