"""`distrain serve backup` and `restore`: copies of a database of SQLite."""

from pathlib import Path

import click

from distrain.cli.options import PATH, json_option
from distrain.cli.output import print_answer, print_result
from distrain.cli.service.given import open_database, read_settings, settings_options


@click.command("backup")
@settings_options
@click.argument("file", type=PATH)
@json_option("Print one JSON document.")
def backup(config: Path | None, data_dir: Path | None, file: Path, as_json: bool) -> None:
    """Copy the database into FILE while the service runs. For PostgreSQL there is pg_dump.

    The copy holds no token's text, but all else: keep it as private as the data folder. Run
    directories, clusters' state and the service's key are not in it.

    \b
    Examples:
      distrain serve backup /backups/service-$(date +%F).db
    """
    settings = read_settings(config, data_dir)
    with open_database(settings) as store:
        store.backup(file)
    if as_json:
        print_answer(file=str(file))
    print_result(f"the database of the service in {settings.data_dir} is in {file}")


@click.command("restore")
@settings_options
@click.argument("file", type=PATH)
@json_option("Print one JSON document.")
def restore(config: Path | None, data_dir: Path | None, file: Path, as_json: bool) -> None:
    """Put a copy in the place of the database. The service must not run.

    Jobs that were submitted after the copy was made are unknown to the service then.

    \b
    Examples:
      distrain serve restore /backups/service-2026-03-01.db
    """
    settings = read_settings(config, data_dir)
    from distrain.service.process import make_folder
    from distrain.service.store import restore as put_back

    make_folder(settings)
    before = put_back(settings, file)
    if as_json:
        print_answer(file=str(file), before=str(before) if before else None)
    # Without --config it is the folder of whoever calls, which a service of systemd does not use.
    print_result(f"{file} is the database of the service in {settings.data_dir}")
    if before:
        print_result(f"the one that was there before is {before}")
