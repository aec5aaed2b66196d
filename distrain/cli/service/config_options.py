"""The options of a service's configuration, and the settings that they give."""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from distrain.cli.options import PATH
from distrain.errors import InputError
from distrain.version import how_to_install

if TYPE_CHECKING:
    from distrain.service.settings import Settings
    from distrain.service.store.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])


def settings_options(function: Function) -> Function:
    """Add `--config` and `--data-dir`."""
    function = click.option(
        "--data-dir",
        type=PATH,
        metavar="FOLDER",
        help="The service's data folder. Default: ~/.local/share/distrain/serve, or below "
        "XDG_DATA_HOME.",
    )(function)
    return click.option(
        "--config",
        type=PATH,
        metavar="serve.yaml",
        envvar="DISTRAIN_SERVE_CONFIG",
        help="The service's configuration. Default: DISTRAIN_SERVE_CONFIG.",
    )(function)


def with_settings(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--config` and `--data-dir`; the command gets the service's settings as `settings`.

    A value of the command's option `--port`, if it has one, becomes part of the settings.
    """

    @wraps(function)
    def read_first(
        *, config: Path | None, data_dir: Path | None, port: int | None = None, **options: Any
    ) -> None:
        function(settings=read_settings(config, data_dir, port), **options)

    return settings_options(read_first)


def read_settings(
    config: Path | None, data_dir: Path | None, port: int | None = None, no_cluster: bool = False
) -> "Settings":
    """Read the service's settings from a command's options, the environment and a file.

    Args:
        config: The configuration file.
        port: The port of the API.
        no_cluster: Leave out clusters that the service would start on this machine.

    Raises:
        InputError: A package that the service needs is not installed, or the settings are invalid.
    """
    try:
        import alembic
        import fastapi
        import sqlalchemy
        import structlog
        import uvicorn

        from distrain.service.settings import load_settings

        del alembic, fastapi, sqlalchemy, structlog, uvicorn
    except ModuleNotFoundError as error:
        raise InputError(
            f"the service needs a package that is not installed: {error.name}",
            hint=f"Install them with {how_to_install('service')}.",
        ) from error
    overrides: dict[str, Any] = {}
    if data_dir is not None:
        overrides["data_dir"] = data_dir
    if port is not None:
        overrides["listen"] = {"port": port}
    settings = load_settings(config, **overrides)
    if no_cluster:
        kept = {name: p for name, p in settings.clusters.items() if not p.is_started}
        settings = settings.model_copy(update={"clusters": kept})
    return settings


def open_database(settings: "Settings") -> "Store":
    """Open the service's database, also while the service runs."""
    from distrain.service.store.store import open_store

    return open_store(settings, single=False)
