"""The command that shows a store in a browser."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.cli.common import Target, app
from spark_partq.cli.output import say, say_prose
from spark_partq.spark.jobs import Stop

_WAKE_S = 3600.0


@app.command("console")
def console(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free one.")] = 8765,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 is every network of this machine.")
    ] = "127.0.0.1",
    every: Annotated[
        float,
        typer.Option(
            min=0.05,
            metavar="SECONDS",
            help="Shortest time between two reads of the store, for all browsers together. While no browser shows it, the store is not read.",
        ),
    ] = 2.0,
    actions: Annotated[
        bool,
        typer.Option(
            "--actions",
            help="Let everyone who has the address that the command then prints rebalance groups, set ingress and reset offsets.",
        ),
    ] = False,
) -> None:
    """Show the store in a browser, live, until SIGTERM or Ctrl-C. Needs the extra `console`.

    The page shows groups with their clients and partitions, queues, which flow owned which partition when, why a partition waits, and the history.
    The console writes nothing, unless you pass --actions. Everybody who can reach the port can see names, hosts and settings: there is no password.
    """
    target: Target = context.obj
    store = target.opened
    store.check_exists()
    try:
        from spark_partq.console.guard import is_loopback, new_token
        from spark_partq.console.server import serving
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in ("starlette", "uvicorn"):
            raise
        raise partq.InvalidArgumentError(
            f"the package {package} is not installed; run: pip install 'spark_partq[console]'", package=package
        ) from None
    stop = Stop()
    token = new_token() if actions else None
    with serving(store, host, port, every, token) as listening:
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening}/"
        if not is_loopback(host):
            text = "other machines can reach the console, and there is no password: let only those reach the port who may see the store"
            say_prose(f"warning: {text}", error=True)
        say(f"console of {store.uri} at {address}{f'#token={token}' if token else ''}")
        while not stop.wait(_WAKE_S):
            pass
