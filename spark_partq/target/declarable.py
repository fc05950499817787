"""Which columns a Delta table may get from delta-rs, which writes the table's log."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from spark_partq.core.errors import UnsupportedTableError
from spark_partq.core.payload.schema import type_name
from spark_partq.storage.store import Store


def check_declarable(place: Store, fields: Sequence[Mapping[str, Any]]) -> None:
    """Refuse columns for which delta-rs would not declare the table's feature: nothing that uses delta-rs could read the table any more.

    Raises
    ------
    UnsupportedTableError
    """
    for field in fields:
        if _has_times_in_a_map(field["type"]):
            raise UnsupportedTableError(
                f"column {field['name']} is {type_name(field['type'])}: delta-rs, which writes the log of {place.uri}, does not declare timestamp_ntz in a "
                "map, and could not read the table any more. Nothing was written. Cast the values to timestamp, or create the column with Spark",
                table=place.uri,
                features=f"timestamp_ntz in column {field['name']}",
            )


def _has_times_in_a_map(type_: Any) -> bool:
    if not isinstance(type_, dict):
        return False
    if type_["type"] == "map" and '"timestamp_ntz"' in json.dumps(type_):
        return True
    inner = [field["type"] for field in type_.get("fields", ())] + [type_.get("elementType")]
    return any(map(_has_times_in_a_map, inner))
