"""`distrain completion`: shell completion."""

import click
from click.shell_completion import get_completion_class

from distrain.cli.output import print_result


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script that completes `distrain` commands in SHELL.

    \b
    Examples:
      eval "$(distrain completion bash)"                    this shell
      distrain completion zsh  > ~/.zfunc/_distrain         every new zsh
      distrain completion fish > ~/.config/fish/completions/distrain.fish
    """
    from distrain.cli.main import cli

    found = get_completion_class(shell)
    assert found is not None
    print_result(found(cli, {}, "distrain", "_DISTRAIN_COMPLETE").source())
