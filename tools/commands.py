"""Write docs/commands.md: each command of ``spark-partq``, from its docstring and its parameters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from spark_partq.cli import app

PAGE = Path(__file__).parents[1] / "docs" / "commands.md"
OF_THE_STORE = ("store", "storage_option")  # of every command
COMMAND: Any = typer.main.get_command(app)

HEAD = """\
# Command line

`spark-partq [--store STORE] COMMAND`, which `pip install` puts beside Python. `python -m tools.commands` makes this page, from the commands themselves;
`spark-partq COMMAND --help` prints the same in a terminal.

`--store` and `--storage-option` may stand before a command or after it; what stands after it counts. [options.md](options.md#on-the-command-line) says where
the store and its credentials come from if neither stands there. With `--json` a command prints JSON for programs, with the fields that are listed in
[json.md](json.md).

The exit code is 0 if the command is done, 1 if it was refused or a check found a fault, 2 if it was used wrongly, 130 after Ctrl-C. An error is
one line on the standard error stream: `error: [CLASS] message`; [errors.md](errors.md) lists the classes.
"""


def page() -> str:
    context = typer.Context(COMMAND, info_name="spark-partq")
    found = dict(commands(context))
    listed = [f"| [`{name}`](#{anchor(name)}) | {first_sentence(one.command.help)} |" for name, one in found.items()]
    return "\n".join(
        [HEAD, "| command | |", "|---|---|", *listed, "", *(section(name, one) for name, one in found.items())]
    )


def commands(context: typer.Context, before: str = "") -> Iterator[tuple[str, typer.Context]]:
    """Names, with that of the group before them, and a context of each command; in the order of ``--help``."""
    group: Any = context.command
    for name, command in group.commands.items():
        inner = typer.Context(command, info_name=name, parent=context)
        if hasattr(command, "commands"):
            yield from commands(inner, f"{name} ")
        else:
            yield before + name, inner


def section(name: str, context: typer.Context) -> str:
    own = [one for one in context.command.params if one.name not in (*OF_THE_STORE, "help")]
    arguments = [one for one in own if one.param_type_name == "argument"]
    words = ["spark-partq", name, *(metavar(one) for one in arguments)]
    lines = [f"## {name}", "", f"`{' '.join(words)}`", "", context.command.help or "", ""]
    if own:
        lines += ["| | |", "|---|---|", *(row(one, context) for one in own), ""]
    return "\n".join(lines)


def row(parameter: Any, context: typer.Context) -> str:
    names, told = parameter.get_help_record(context)
    if parameter.param_type_name == "argument":
        names = metavar(parameter)
    names, told = (" ".join(text.split()).replace("|", "\\|") for text in (names, told))
    return f"| `{names}` | {told} |"


def metavar(argument: Any) -> str:
    shown = argument.metavar or argument.name.upper()
    return shown if argument.required else f"[{shown}]"


def first_sentence(text: str | None) -> str:
    return (text or "").split("\n\n")[0].replace("\n", " ")


def anchor(name: str) -> str:
    return name.replace(" ", "-")


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
