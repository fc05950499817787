"""docs/producing.md runs as it stands there, across a resize and restarts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.howto import run

MADE = """
def land(name, numbers):
    with open(f"landing/{name}.json", "w") as file:
        file.writelines(json.dumps({"order_id": f"l{n:02}", "customer": f"c{n % 3}", "amount": float(n)}) + "\\n" for n in numbers)

def stored():
    found = partq.session("tests").read.format("partq").option("path", "store").option("queue", "orders").load()
    return found.orderBy("_partition", "_offset").collect()

os.mkdir("landing")
make(3)
"""
AGAIN = """
partq.append(rows, "store", "orders", sink_id="night", batch_id=0)
assert sorted(row.order_id for row in stored()) == ["n1", "n2"]
land("b", range(5, 10)), land("a", range(5))
"""
END = """
partq.scale("store", "orders", 5)
land("c", range(10, 20))
produce()
produce()
found = [row for row in stored() if row.order_id.startswith("l")]
assert sorted(row.order_id for row in found) == [f"l{n:02}" for n in range(20)], found
for customer in ("c0", "c1", "c2"):
    old, new = ([r.order_id for r in found if r.customer == customer and (r.order_id < "l10") == first] for first in (True, False))
    assert old == sorted(old) and new == sorted(new), (old, new)
print(json.dumps(len(found)))
"""


@pytest.mark.long
def test_the_page(tmp_path: Path) -> None:
    """Q4, Q5: each order once, those of a customer in their order, though a batch is appended twice and the queue is resized."""
    printed = run("producing.md", tmp_path, {0: MADE, 1: AGAIN, -1: END})
    assert json.loads(printed.strip().splitlines()[-1]) == 20
