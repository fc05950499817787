"""Commands for monitors: an endpoint with metrics, and a check for probes."""

from __future__ import annotations

from typing import Annotated

import typer

import spark_partq as partq
from spark_partq.cli.common import GroupName, Json, Target, app
from spark_partq.cli.output import print_json, say, say_prose
from spark_partq.cli.settings import duration_ms
from spark_partq.spark.jobs import Stop
from spark_partq.storage.inspect.progress import check_progress


@app.command("check")
def check(
    context: typer.Context,
    group: GroupName,
    within: Annotated[
        str,
        typer.Option(
            metavar="30s|10m", help="Longest time to wait for an acknowledgement; longer than a micro-batch takes."
        ),
    ] = "60s",
    as_json: Json = False,
) -> None:
    """Check that a consumer group makes progress; for probes and alerts.

    The exit code is 0 as soon as the group acknowledges a message, or at once if it has nothing to read. The exit code is 1 if the group has
    messages and no query is in it, or no member shows a heartbeat for its session timeout, or it acknowledges nothing in time; and if the
    group was deleted.
    """
    target: Target = context.obj
    found = check_progress(target.opened, group, duration_ms(within) / 1000)
    if as_json:
        print_json(found.to_dict())
    else:
        say_prose(f"group {group} {'is healthy' if found.healthy else 'makes no progress'}: {found.why}")
    if not found.healthy:
        raise typer.Exit(1)


@app.command("metrics")
def metrics(
    context: typer.Context,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 is any free one.")] = 9464,
    host: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 is every network of this machine.")
    ] = "127.0.0.1",
) -> None:
    """Serve the metrics of the store for Prometheus, at /metrics, until SIGTERM or Ctrl-C. Needs the extra `metrics`.

    Each scrape reads the store and nothing else, and writes nothing. Everybody who can reach the port can read the names of queues, groups and
    members: there is no password.
    """
    target: Target = context.obj
    store = target.opened
    store.check_exists()
    try:
        from spark_partq.metrics.endpoint import serving
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "prometheus_client":
            raise
        raise partq.InvalidArgumentError(
            "the package prometheus_client is not installed; run: pip install 'spark_partq[metrics]'",
            package="prometheus_client",
        ) from None
    stop = Stop()
    with serving(store, host, port) as listening:
        say(f"metrics of {store.uri} at http://{host}:{listening}/metrics")
        while not stop.wait(_WAKE_S):
            pass


_WAKE_S = 3600.0
