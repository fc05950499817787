"""The history of a group and why a partition waits, as the page asks for them."""

from __future__ import annotations

import dataclasses
from typing import Any

from spark_partq.console.looks import Looks
from spark_partq.core.errors import InvalidArgumentError
from spark_partq.storage.group.handle import open_group
from spark_partq.storage.inspect.explain import explain, explain_open, find_partition
from spark_partq.storage.inspect.fact_reader import FactFilter

# The number of facts shown that led to a partition's owner.
MOST_STEPS = 50


def history_answer(looks: Looks, group: str, wanted: FactFilter, before: int | None, most: int) -> dict[str, Any]:
    """A page of the history, the newest fact first; rows are those of ``spark-partq history --json``.

    `older` is the parameter `before` of the next page; None if this is the last page. `end` is the number that the group's next fact will get.

    Raises
    ------
    PartqError
    """
    open_group(looks.store, group, deleted=True)  # refuses an unknown or newer group
    page = looks.facts(group).page(wanted, before, most)
    facts = [{**row, "at": row["at"].isoformat()} for row in page.facts]
    return {"facts": facts, "older": page.older, "end": page.end}


def explain_answer(looks: Looks, group: str, queue: str, partition: int) -> dict[str, Any]:
    """What ``spark-partq explain --json`` says, with only the last steps; `steps_before` is how many steps came before these.

    Raises
    ------
    PartqError
    """
    looks.refresh()
    opened = looks.watch.group(group)
    if opened is None:
        found = explain(looks.store, queue, partition, group)
    else:
        partition_id = find_partition(opened, queue, partition)
        read = looks.watch.queues_of(opened).get(partition_id[0])
        found = explain_open(opened, partition_id, read, looks.facts(group))
    shown = dataclasses.replace(found, steps=found.steps[-MOST_STEPS:])
    return {"explanation": shown.to_dict(), "steps_before": len(found.steps) - len(shown.steps)}


def parsed_partition(text: str) -> tuple[str | None, int | None]:
    """``orders/3``, ``3`` or an empty text, as a queue and a partition number.

    Raises
    ------
    InvalidArgumentError
    """
    queue, _, number = text.rpartition("/")
    if not text:
        return None, None
    if not number.isascii() or not number.removeprefix("-").isdigit() or len(number) > 9:
        raise InvalidArgumentError(f"{text!r} is neither a number nor QUEUE/NUMBER", partition=text)
    return queue or None, int(number)
