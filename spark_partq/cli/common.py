"""What the commands share: the store they are about, how they print."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, TypeVar

import typer

import spark_partq as partq
from spark_partq import render
from spark_partq.cli.output import say, say_prose, screen
from spark_partq.cli.plain import plain
from spark_partq.spark.jobs import StorageOptions, key_values
from spark_partq.storage.store import Store

Function = TypeVar("Function", bound=Callable[..., Any])

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Watch = Annotated[bool, typer.Option("--watch", help="Repeat until Ctrl-C or SIGTERM.")]
Every = Annotated[float, typer.Option(min=0.05, metavar="SECONDS", help="With --watch: pause between two looks.")]
EVERY_S = 2.0
QueueName = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
GroupName = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the consumer group.")]


@dataclass(frozen=True)
class Target:
    """The store that a command is about."""

    path: str | None
    storage_options: dict[str, str] = field(repr=False)

    @property
    def store(self) -> str:
        if not self.path:
            raise typer.BadParameter("name the store: --store PATH, or SPARK_PARTQ_STORE")
        return self.path

    @property
    def opened(self) -> Store:
        return Store.at(self.store, self.storage_options)


class App(typer.Typer):
    """Commands that are about a store: each takes the options that say which, so they may stand before it or after it.

    What stands after the command takes the place of what stands before it, or in the environment.
    """

    def command(self, *arguments: Any, **named: Any) -> Callable[[Function], Function]:
        add = super().command(*arguments, **named)

        def register(function: Function) -> Function:
            add(_with_store(function))
            return function

        return register


def _with_store(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the options of the store, which end up in its context's `Target`."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        context = arguments["context"] if "context" in own else arguments.pop("context")
        store, storage_option = arguments.pop("store"), arguments.pop("storage_option")
        target: Target = context.obj
        if store:
            target = replace(target, path=store)
        if storage_option:
            target = replace(target, storage_options=key_values(storage_option))
        context.obj = target
        command(**arguments)

    own = inspect.signature(command, eval_str=True).parameters
    parameters = {name: p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for name, p in own.items()}
    kind, nothing = inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.empty
    for name, annotation, default in (
        ("context", typer.Context, nothing),
        ("store", _STORE, None),
        ("storage_option", _STORAGE_OPTIONS, None),
    ):
        parameters.setdefault(name, inspect.Parameter(name, kind, annotation=annotation, default=default))
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return run


# After the command; the environment is heeded where they stand before it.
_STORE = Annotated[
    str | None,
    typer.Option(
        "--store", metavar="STORE", help="Folder or object-store URI of the store.", rich_help_panel="The store"
    ),
]
_STORAGE_OPTIONS = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="NAME=VALUE|@FILE",
        help="Storage option of the store; same as before the command.",
        rich_help_panel="The store",
    ),
]

app = App(
    name="spark-partq",
    help="Partitioned message queues for Spark on Delta tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)


def _say_version(asked: bool) -> None:
    if asked:
        print(f"spark_partq {partq.__version__}")
        raise typer.Exit


@app.callback()
def common(
    context: typer.Context,
    store: Annotated[
        str | None, typer.Option(envvar="SPARK_PARTQ_STORE", help="Folder or object-store URI of the store.")
    ] = None,
    storage_option: StorageOptions = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    context.obj = Target(store, key_values(storage_option))


def confirm(question: str, refused: str, **names: str) -> None:
    """Ask; without a terminal nobody can answer.

    Parameters
    ----------
    refused : str
        What is told if the answer is not yes; with `names` of what it is about.

    Raises
    ------
    InvalidArgumentError
        If the answer is not yes.
    """
    agreed = False
    if sys.stdin.isatty():
        lines = render.filled(plain(question), width=screen(error=True).width - len(_CHOICE))
        try:
            agreed = typer.confirm("\n".join(lines), err=True)
        except typer.Abort:  # Ctrl-C or Ctrl-D, which leave the cursor behind the question
            say("", error=True)
    if not agreed:
        raise partq.InvalidArgumentError(refused, **names)


_CHOICE = " [y/N]: "  # what typer puts behind a question


@contextmanager
def interruptible(what: str) -> Iterator[None]:
    """Ctrl-C ends the command, and it says that running it again goes on with `what`."""
    try:
        yield
    except KeyboardInterrupt:
        say_prose(f"interrupted: run it again to go on with {what}", error=True)
        raise typer.Exit(130) from None


def count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"


def named_values(option: str, texts: Sequence[str], form: str, if_twice: str = "") -> dict[str, str]:
    """What an option that may be repeated gives, by name.

    Raises
    ------
    typer.BadParameter
        If a text is not of the form, or a name is given twice. `if_twice` says what to do about that.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"{option} {text!r} is not of the form {form}")
        if name in found:
            raise typer.BadParameter(f"{option} {name} is given twice{if_twice}")
        found[name] = value
    return found
