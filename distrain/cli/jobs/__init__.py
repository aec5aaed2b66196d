"""Commands that give jobs to a scheduler or a service, show them, follow them and stop them."""

from distrain.cli.jobs.place import default_server, server_option, service_at

__all__ = ["default_server", "server_option", "service_at"]
