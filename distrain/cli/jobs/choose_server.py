"""Chooses the scheduler or the service that has a command's jobs."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from distrain.cli.jobs.service_connection import SERVER_VARIABLE, default_server
from distrain.cli.options import SCHEDULER_VARIABLE, Function, connection_options

_NOWHERE = (
    f"Name a scheduler: --scheduler ADDRESS, or {SCHEDULER_VARIABLE}. "
    f"Or a service: --server ADDRESS, {SERVER_VARIABLE}, or `distrain login ADDRESS`."
)


READ_S = 10.0
"""Seconds for which read-only commands retry: people wait for them, and can repeat them."""


@dataclass(frozen=True)
class JobServer:
    """The address of a service, or of a scheduler that is used without a service."""

    address: str
    is_service: bool

    @contextmanager
    def jobs(self, for_s: float | None = None) -> Iterator[Any]:
        """Yield the job commands for this service or scheduler: `ServiceJobs` or `SchedulerJobs`.

        `for_s` is as in `service_at`.
        """
        with ExitStack() as stack:  # imported here, so that help loads neither
            if self.is_service:
                from distrain.cli.jobs.at_service import ServiceJobs

                yield ServiceJobs(self.address, stack, for_s)
            else:
                from distrain.cli.jobs.at_scheduler import SchedulerJobs

                yield SchedulerJobs(self.address, stack)


def server_option(function: Function) -> Function:
    """Add `--server`, the address of a job service."""
    return click.option(
        "--server",
        metavar="ADDRESS",
        envvar=SERVER_VARIABLE,
        callback=lambda context, parameter, value: value or None,
        help="The service that has the job: https://HOST, http://127.0.0.1:PORT or unix:/PATH. "
        f"Default: {SERVER_VARIABLE}, then that of `distrain login`, unless --scheduler or "
        f"{SCHEDULER_VARIABLE} is set.",
    )(function)


def job_server_options(help_text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add `--scheduler` with the TLS options, and `--server`; the command gets a `JobServer`."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def with_server(*, scheduler: str | None, server: str | None, **options: Any) -> None:
            function(server=_chosen(scheduler, server), **options)

        return connection_options(help_text)(server_option(with_server))

    return decorate


def _job_id(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    from distrain.jobs.run_paths import JOB_ID

    if value is not None and not re.fullmatch(JOB_ID, value):
        raise click.BadParameter("1 to 128 letters, digits, '.', '-' and '_', no sign first.")
    return value


id_option = click.option(
    "--id",
    "job_id",
    callback=_job_id,
    help="The new job's id. A repeated command with the same id submits nothing twice. Default: "
    "the job's name and the time.",
)
job_options = job_server_options("The Dask scheduler that has the job.")
wait_option = click.option(
    "--wait", "waits", is_flag=True, help="Wait until the job ends; exit with its exit code."
)


def _chosen(scheduler: str | None, server: str | None) -> JobServer:
    """Return the service or scheduler that has the running command's jobs.

    The command line's options take precedence, then DISTRAIN_SCHEDULER, DISTRAIN_SERVER and the
    default of `distrain login`. Raises `click.UsageError` if both options are on the command line,
    or nothing names a scheduler or a service.
    """
    context = click.get_current_context()
    on_command_line = {
        name
        for name in ("scheduler", "server")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    if scheduler and server and on_command_line >= {"scheduler", "server"}:
        raise click.UsageError("Give either --scheduler or --server: a job belongs to one of them.")
    if server and "server" in on_command_line:
        return JobServer(server, is_service=True)
    if scheduler:
        return JobServer(scheduler, is_service=False)
    address = server or default_server()
    if address is None:
        raise click.UsageError(_NOWHERE)
    return JobServer(address, is_service=True)


def server_of_run(run: Path, server: str | None) -> str | None:
    """Return the address of the service that has the job `run`; `None` if `run` is a run folder.

    `run` is a job's id if `--server` is on the command line, or if it is a single name, not a path,
    and no such file or folder exists. For a job's id, the result is `None` if no service is known.
    `server` is the value of `--server`.
    """
    source = click.get_current_context().get_parameter_source("server")
    if server and source is ParameterSource.COMMANDLINE:
        return server
    if len(run.parts) != 1 or run.exists():
        return None
    return server or default_server()
