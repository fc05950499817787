"""The how-to pages run as they stand there, while messages come, the queue is resized and partitions change hands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from functools import reduce
from pathlib import Path

import pytest
from deltalake import DeltaTable

import spark_partq as partq
from tests import s3server, standalone
from tests.helpers import ROOT
from tests.howto import run, section


def last(printed: str) -> object:
    """What the program printed last, as JSON."""
    return json.loads(printed.strip().splitlines()[-1])


@pytest.mark.long
def test_rewind(tmp_path: Path) -> None:
    """H4: after the restart all messages are billed again, across a resize, in both ways that the page shows; none is there twice."""
    taxes = """
def taxes(path, tax):
    found = sorted((row.order_id, row.tax) for row in table(path).select("order_id", "tax").collect())
    assert found == sorted((order, amount * tax) for order, _, amount in sent), (path, found)
"""
    printed = run(
        "rewind.md",
        tmp_path,
        {
            0: f"{taxes}\nmake(3); send(40)",
            1: "taxes('billed', 0.02); partq.scale('store', 'orders', 5); send(20); bill(0.02, 'billed'); taxes('billed', 0.02)",
            3: "assert partq.describe_group('store', 'billing').lag == 60; send(5)",
            5: "taxes('billed-again', 0.2); assert partq.describe_group('store', 'billing').lag == 0",
            -1: "taxes('billed', 0.2); taxes('billed-again', 0.2); print(json.dumps(sum(row[2] for row in sent)))",
        },
    )
    assert f"|{last(printed)}" in printed.replace(" ", "")
    assert "60" in printed


@pytest.mark.long
def test_eager_to_cooperative(tmp_path: Path) -> None:
    """K7: no order is lost or billed twice, while messages come all the time and the queue is resized between the rounds."""
    producer = """
import threading
over = threading.Event()
def produce():
    while not over.wait(0.3):
        send(5)
producer = threading.Thread(target=produce, daemon=True)
"""
    end = """
over.set(); producer.join(); settled("billing", 2)
for query in queries.values():
    assert query.exception() is None
    query.stop()
found = sorted(row.order_id for row in table("billed").select("order_id").collect())
assert found == sorted(order for order, _, _ in sent)
kinds = [row.kind for row in partq.history(spark, "store", group="billing").collect()]
print(json.dumps([len(sent), kinds.count("HandoffStarted"), kinds.count("MemberJoined")]))
"""
    both = "'billing' in partq.list_groups('store') and len(partq.describe_group('store', 'billing').members) == 2"
    start = f"{producer}\nproducer.start()\neventually(lambda: {both}, 'both members')"
    printed = run(
        "eager-to-cooperative.md", tmp_path, {0: "make(4)", 1: start, 3: "partq.scale('store', 'orders', 6)", -1: end}
    )
    sent, handoffs, joined = last(printed)  # type: ignore[misc]
    assert sent > 20 and handoffs >= 1 and joined == 6


@pytest.mark.long
def test_state(tmp_path: Path) -> None:
    """H4: totals in one query, across a restart and a resize; balances of two queries, across a crash, a resize and handoffs."""
    totals = """
def run_totals():
    query = sum_up(); query.processAllAvailable(); query.stop()
    assert query.exception() is None
run_totals(); send(30); partq.scale("store", "orders", 5); send(30); run_totals(); send(10); run_totals()
print("TOTALS", json.dumps({row.customer: row.total for row in table("totals").collect()}))
print("SENT", json.dumps(sent))
"""
    balances = """
def dying(batch, batch_id):
    keep(batch, batch_id)
    raise InterruptedError("the driver is gone")
query = orders("balances").load().writeStream.foreachBatch(dying).option("checkpointLocation", "checkpoints/a").start()
eventually(lambda: not query.isActive, "the crash")
a = keep_balances("a"); send(20); a.processAllAvailable()
b = keep_balances("b"); settled("balances", 2); send(20)
partq.scale("store", "orders", 7); send(20); settled("balances", 2)
a.stop(); send(20); settled("balances", 1); a = keep_balances("again"); send(20); settled("balances", 2)
for query in (a, b):
    assert query.exception() is None
    query.stop()
kinds = [row.kind for row in partq.history(spark, "store", group="balances").collect()]
assert "HandoffStarted" in kinds
print("SENT", json.dumps(sent))
print(json.dumps({row.customer: row.balance for row in table("balances").collect()}))
"""
    printed = run("state.md", tmp_path, {1: "make(3); send(40)", 2: totals, -1: balances})
    told = {line.partition(" ")[0]: line.partition(" ")[2] for line in printed.splitlines()[:-1] if "SENT" not in line}
    first, everything = (json.loads(line[5:]) for line in printed.splitlines() if line.startswith("SENT "))
    assert json.loads(told["TOTALS"]) == {f"c{n}": sum(m[2] for m in first if m[1] == f"c{n}") for n in range(5)}
    amounts = {f"c{n}": [message[2] for message in everything if message[1] == f"c{n}"] for n in range(5)}
    assert last(printed) == {name: reduce(lambda b, a: max(b + a, 0.0), mine, 0.0) for name, mine in amounts.items()}


@pytest.mark.long
def test_object_store(tmp_path: Path) -> None:
    """Q1, Q7: the whole page in a bucket, across a resize, a handoff and a restart; each order is in the table once."""
    between = """
sent.extend(orders); STORE = store
send(20); a, b = consume("a"), consume("b")
settled("billing", 2); send(20); settled("billing", 2)
"""
    end = """
send(20); b.processAllAvailable(); settled("billing", 2); a.stop(); send(20); settled("billing", 1); b.stop()
query = consume("a"); send(20); query.processAllAvailable(); query.stop()
found = DeltaTable("s3://warehouse/billed").to_pandas()["order_id"]
assert sorted(found) == sorted(row[0] for row in sent)
print(json.dumps(partq.describe_queue(store, "orders").operating_partitions))
"""
    with s3server.running() as server:
        request = urllib.request.Request(f"{server.endpoint}/warehouse", method="PUT")
        urllib.request.urlopen(request).close()
        options = {name.upper(): value for name, value in server.options.items()}
        printed = run("object-store.md", tmp_path, {2: "assert spark", 3: between, -1: end}, **options)
    assert last(printed) == 6 and "a2" in printed


@pytest.mark.long
def test_clusters(tmp_path: Path) -> None:
    """U1: the section about a standalone cluster, in a shell; then its consumers start again after the resize."""
    first, consume, after = section("clusters.md", "Standalone")
    again = consume.partition("}\n")[2]
    orders = [{"order_id": f"o{n}", "customer": f"c{n % 5}", "amount": float(n)} for n in range(60)]
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing" / "orders.json").write_text("\n".join(map(json.dumps, orders[:40])))
    (tmp_path / "more.json").write_text("\n".join(map(json.dumps, orders[40:])))
    produce = first.partition("submit jobs")[1] + first.partition("submit jobs")[2]
    script = f"set -e\n{first}\n{consume}\n{after}\ncp $WORK/more.json $WORK/landing/\n{produce}\n{again}"
    with standalone.cluster(tmp_path / "cluster") as cluster:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        env |= {"MASTER": cluster.master, "STORE": str(tmp_path / "store"), "WORK": str(tmp_path)}
        command = ["bash", "-c", script]
        done = subprocess.run(command, check=False, cwd=ROOT, env=env, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr[-6000:]
    billed = DeltaTable(tmp_path / "billed").to_pyarrow_table().column("order_id").to_pylist()
    assert sorted(billed) == sorted(order["order_id"] for order in orders)
    assert partq.describe_queue(tmp_path / "store", "orders").operating_partitions == 6
    assert len(partq.describe_group(tmp_path / "store", "billing").members) == 0


@pytest.mark.long
def test_spark_connect(tmp_path: Path) -> None:
    """The page on a Connect server of PySpark's own; then a resize, a restart with the checkpoint, and another member without one."""
    pytest.importorskip("grpc", reason="PySpark's Connect client is not installed")
    put = """
from tests.helpers import new_file, opened
def put(count):
    for table in opened("store", "orders").partitions:
        rows = [(f"{table.partition}-{len(sent) + n}", "ada", 1.0) for n in range(count)]
        columns = dict(zip(("order_id", "customer", "amount"), zip(*rows)))
        generation = partq.describe_queue("store", "orders").generation
        table.append([new_file("store", "orders", table.partition, columns)], None, generation)
        sent.extend(rows)
make(3); put(10)
"""
    end = """
put(5); consume("checkpoints/billing")
partq.scale("store", "orders", 4); put(5); consume("checkpoints/billing")
put(5); consume("checkpoints/other")
found = spark.read.parquet("billed").select("order_id", "_partition", "_offset").collect()
assert sorted(row.order_id for row in found) == sorted(row[0] for row in sent), found
print(json.dumps([len(found), partq.describe_group("store", "billing").lag]))
"""
    printed = run("spark-connect.md", tmp_path, {0: put, -1: end})
    assert "30 messages\n0 messages left\n" in printed
    assert last(printed) == [30 + 15 + 20 + 20, 0]
