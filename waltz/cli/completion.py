"""``waltz completion``: scripts for the completion of commands in shells."""

import argparse
import importlib.util

from waltz.cli.nouns import NOUNS
from waltz.cli.session import Nouns
from waltz.common.errors import WaltzError
from waltz.common.version import with_extra

SHELLS = ("bash", "zsh", "fish")

_DESCRIPTION = (
    'Print a script for completion: eval "$(waltz completion bash)" in ~/.bashrc, the same with zsh in '
    "~/.zshrc, and waltz completion fish | source in ~/.config/fish/config.fish."
)


def register(nouns: Nouns) -> None:
    """Add the command."""
    parser = nouns.add_parser("completion", help=NOUNS["completion"].help_text, description=_DESCRIPTION)
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    if importlib.util.find_spec("argcomplete") is None:
        raise WaltzError(f"completion needs argcomplete: {with_extra('tools')}")
    from argcomplete.shell_integration import shellcode

    print(shellcode(["waltz"], shell=options.shell))
    return 0


def answer(grammar: argparse.ArgumentParser) -> None:
    """Print the completions for a shell, and end the process."""
    if importlib.util.find_spec("argcomplete") is not None:
        import argcomplete

        argcomplete.autocomplete(grammar)
