"""`distrain serve`: runs the job service, its processes, and maintenance of its database."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from distrain.cli.interrupts import if_interrupted
from distrain.cli.options import PATH, json_option
from distrain.cli.output import (
    print_answer,
    print_facts,
    print_remark,
    print_result,
    print_warning,
)
from distrain.cli.service.config_options import (
    open_database,
    read_settings,
    settings_options,
    with_settings,
)
from distrain.cli.service.tokens import token

if TYPE_CHECKING:
    from distrain.service.process.entry import Serving
    from distrain.service.settings import Settings


@click.command("backup")
@with_settings
@click.argument("file", type=PATH)
@json_option("Print one JSON document.")
def backup(settings: "Settings", file: Path) -> None:
    """Copy the database into FILE while the service runs. For PostgreSQL use pg_dump.

    The copy contains everything in the database: keep it as private as the data folder. Of tokens,
    the database has only hashes. Run folders and the clusters' state are not in the copy.

    \b
    Examples:
      distrain serve backup /backups/service-$(date +%F).db
    """
    with open_database(settings) as store:
        store.backup(file)
    print_answer(file=str(file))
    print_result(f"the database of the service in {settings.data_dir} was copied to {file}")


@click.group("serve", invoke_without_command=True)
@settings_options
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8686; 0 means any free port.")
@click.option("--no-cluster", is_flag=True, help="Start no cluster on this machine.")
@click.option(
    "--stop-clusters", is_flag=True, help="Stop the started clusters when the service ends."
)
@click.option(
    "--no-token", is_flag=True, help="Do not create and print a token at the first start."
)
@json_option("Print the service's address as one JSON document.")
@click.pass_context
def command(
    context: click.Context,
    config: Path | None,
    data_dir: Path | None,
    port: int | None,
    no_cluster: bool,
    stop_clusters: bool,
    no_token: bool,
) -> None:
    """Run the job service: an HTTP API and a web page for one or more clusters.

    Without a configuration, the service keeps its database in your home folder, starts a cluster on
    this machine and listens on 127.0.0.1:8686. The first start prints the operator's token, once.

    Ctrl-C and SIGTERM end only the service: clusters and jobs continue, and the next start finds
    them. Restart it to apply a changed configuration.

    \b
    Commands for parts of the service (each has --help):
      distrain serve api               only the API
      distrain serve reconcile         only the reconciler
      distrain serve check             check configuration, database and clusters
      distrain serve migrate           upgrade the database to this version
      distrain serve backup FILE       copy a database of SQLite
      distrain serve token ...         create, list and revoke tokens

    \b
    Examples:
      distrain serve
      distrain serve --config serve.yaml
      distrain serve --data-dir /srv/distrain --port 9000 --no-cluster
      distrain serve token create --user alice
    """
    if context.invoked_subcommand is not None:
        # DISTRAIN_SERVE_CONFIG is not an option before the command; all commands read it.
        sources = map(context.get_parameter_source, context.params)
        if ParameterSource.COMMANDLINE in sources:
            raise click.UsageError(
                f"Write options after the command: distrain serve {context.invoked_subcommand} ..."
            )
        return
    settings = read_settings(config, data_dir, port, no_cluster)
    from distrain.service.process.entry import serve

    if_interrupted("the service was not started")
    serve(
        settings,
        lambda serving: _print_serving(settings, serving),
        stop_clusters=stop_clusters,
        makes_token=not no_token,
    )
    if not stop_clusters:
        print_remark(_left(settings, stops_clusters=False))


@command.command("api")
@with_settings
@click.option("--port", type=click.IntRange(0, 65535), help="Default: 8686; 0 means any free port.")
@json_option("Print its address as one JSON document.")
def api(
    settings: "Settings",
) -> None:
    """Run only the API; several API processes may use one PostgreSQL database.

    Prepare the database with `distrain serve migrate`; run `distrain serve reconcile` beside it.

    \b
    Examples:
      distrain serve api --config serve.yaml
    """
    from distrain.service.process.entry import api_alone

    api_alone(settings, lambda url: _print_place(url=url))


@command.command("reconcile")
@with_settings
@json_option("Print one JSON document at the start.")
def reconcile(settings: "Settings") -> None:
    """Run only the reconciler: it submits jobs to clusters and writes their run folders.

    If several reconcilers use one PostgreSQL database, one of them handles each cluster. If it
    stops, another takes over within seconds.

    \b
    Examples:
      distrain serve reconcile --config serve.yaml
    """
    from distrain.service.process.entry import reconciler_alone

    reconciler_alone(settings, lambda: _print_place(clusters=", ".join(settings.clusters)))


@command.command("check")
@with_settings
@json_option("Print one JSON list.")
def check(settings: "Settings") -> None:
    """Check a configuration: database, clocks, permissions, clusters. Changes nothing.

    The exit code is 0, 1 for a failed check, or 69 if a database or cluster does not answer.

    \b
    Examples:
      distrain serve check --config serve.yaml
    """
    from dataclasses import asdict

    from distrain.cli.output import print_json
    from distrain.service.process.checks import check_service, exit_code

    checks = check_service(settings)
    print_json([asdict(one) for one in checks])
    for one in checks:
        print_result(f"{one.verdict:4}  {one.name:30} {one.detail}")
        if one.mend and one.verdict != "ok":
            print_result(f"{'':36} -> {one.mend}")
    code = exit_code(checks)
    if code:
        raise click.exceptions.Exit(code)


@command.command("migrate")
@with_settings
@json_option("Print one JSON document.")
def migrate(settings: "Settings") -> None:
    """Create the database's tables, or upgrade them to this version; make a backup first.

    `distrain serve` does this at its start. Also stores the admins, projects and members of the
    configuration in the database.

    \b
    Examples:
      distrain serve migrate --config serve.yaml
    """
    from distrain.service.process.preparing import declare, make_folder
    from distrain.service.store.store import migrate as migrate_database, open_store

    make_folder(settings)
    migrate_database(settings)
    with open_store(settings) as store:
        declare(store, settings)
        where = store.db.where
    print_answer(database=where)
    print_result(f"the database {where} is up to date")


for _command in (token, backup):
    command.add_command(_command)


def _print_serving(settings: "Settings", serving: "Serving") -> None:
    stops = click.get_current_context().params["stop_clusters"]
    if_interrupted(_left(settings, stops_clusters=stops))
    clusters = {name: profile.kind for name, profile in settings.clusters.items()}
    print_facts(
        {
            "page and API": serving.url,
            "data folder": str(settings.data_dir),
            "database": serving.database,
            "clusters": ", ".join(f"{name} ({kind})" for name, kind in clusters.items()) or "none",
        },
        14,
    )
    shown = {}
    if serving.token:
        created, text = serving.token
        shown = {"token": text, "user": created.user}
        print_facts({"token": text}, 14)
        print_warning(
            f"This is the token of the user {created.user}; it is shown only once. "
            f"Create another: distrain serve token create --user NAME{_same_database()}"
        )
    print_answer(
        url=serving.url,
        data_dir=str(settings.data_dir),
        database=serving.database,
        clusters=clusters,
        **shown,
    )


def _left(settings: "Settings", *, stops_clusters: bool) -> str:
    if stops_clusters:
        return "the service has ended; not all clusters that it started were stopped"
    text = "the service has ended; clusters and jobs continue"
    started = [n for n, profile in settings.clusters.items() if profile.is_started]
    if started:
        names = ", ".join(started)
        text += f": `distrain serve --stop-clusters` stops its clusters ({names}) when it ends"
    return text


def _same_database() -> str:
    """Return `--config` and `--data-dir` as given to this command, for a hint; "" without them."""
    given = click.get_current_context().params
    names = {"config": "--config", "data_dir": "--data-dir"}
    return "".join(
        f" {name} {shlex.quote(str(given[key]))}" for key, name in names.items() if given.get(key)
    )


def _print_place(**facts: str) -> None:
    print_facts(facts, 10)
    print_answer(**facts)
