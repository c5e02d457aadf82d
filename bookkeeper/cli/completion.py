"""
`bookkeeper completion`.
"""

import click
from click.shell_completion import get_completion_class

from bookkeeper.console.errors import Command

PROGRAMS = ("bookkeeper", "writer", "reaper")


@click.command(cls=Command, short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """
    Print the script by which SHELL completes commands, options and names of bookkeeper, writer and reaper.

    Names of tables come from the configuration; those of txlogs, writers and consumers from a folder on this disk.

    \b
    Example:
      eval "$(bookkeeper completion bash)"        # in ~/.bashrc, or zsh in ~/.zshrc
      bookkeeper completion fish > bookkeeper.fish  # in ~/.config/fish/conf.d
    """
    kind = get_completion_class(shell)
    assert kind is not None
    for program in PROGRAMS:
        script = kind(click.Command(program), {}, program, f"_{program.upper()}_COMPLETE")
        click.echo(script.source_template % script.source_vars())


COMMANDS = (completion,)
