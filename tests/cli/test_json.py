"""`--json` on every command that prints results."""

import click

from distrain.cli.main import COMMANDS, cli

NO_JSON = {"demo", "completion"}  # it prints what other commands print; a script for a shell


def test_every_command_that_prints_results_takes_json() -> None:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        options = {word for parameter in command.params for word in parameter.opts}
        assert ("--json" in options) != (name in NO_JSON), name
