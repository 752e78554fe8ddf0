"""`gpuplan completion`: the script with which a shell completes gpuplan's commands and options."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_GPUPLAN_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    bash:  echo 'eval "$(gpuplan completion bash)"' >> ~/.bashrc
    zsh:   echo 'eval "$(gpuplan completion zsh)"' >> ~/.zshrc
    fish:  gpuplan completion fish > ~/.config/fish/completions/gpuplan.fish
    """  # noqa: D301
    completer = get_completion_class(shell)
    assert completer is not None, shell
    click.echo(completer(context.find_root().command, {}, "gpuplan", VARIABLE).source())
