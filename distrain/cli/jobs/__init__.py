"""Commands that give jobs to a scheduler or a service, show them, follow them and stop them."""

from distrain.cli.jobs.place import (
    READ_S as READ_S,
    server_of_run as server_of_run,
    server_option as server_option,
)
from distrain.cli.jobs.server import at as at, service_at as service_at, teller as teller
