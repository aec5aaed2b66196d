"""The reference of the command line, from its click objects."""

import inspect
import re

import click
from markdown_pieces import code, table

from distrain.cli.main import COMMANDS, cli


def commands() -> str:
    """A heading, the help and a table of parameters for each command."""
    context = click.Context(cli, info_name="distrain", **cli.context_settings)
    return "\n\n".join(_command(name, context) for name in COMMANDS)


def command_of(name: str) -> click.Command:
    """One command."""
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def _command(name: str, parent: click.Context) -> str:
    command = command_of(name)
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    rows = []
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            forms, help_text = parameter.get_help_record(context) or ("", "")
            rows.append((code(forms), _escaped(help_text)))
    parts = [f"## distrain {name}", f"```text\n{usage}\n```", _prose(command.help or "")]
    if rows:
        parts.append(table(["option", "meaning"], rows))
    return "\n\n".join(parts)


def _prose(help_text: str) -> str:
    r"""Turn click help into Markdown: what `\b` marks keeps its lines."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(help_text)):
        if paragraph.startswith("\b"):
            parts.append("```text\n" + paragraph.removeprefix("\b").strip("\n") + "\n```")
        else:
            parts.append(_escaped(" ".join(paragraph.split())))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Markdown's own marks, and defaults such as `[default: 1]`, as plain text."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else re.sub(r"([\\*_\[\]<>])", r"\\\1", piece)
        for piece in pieces
    )
