"""A second judge of order and ownership, of which nobody here wrote the search: Porcupine, a checker of linearizability in Go.

`linearizable` holds the models. Here what is known of a history becomes operations, and the two verdicts are compared.
"""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.faults.judge import DISAGREED, LOST, MISORDERED, OWNERS, PHANTOM, TWICE, Evidence, Verdict
from tests.faults.order import Order
from tests.faults.ownership import Operation, Ownership
from tests.helpers import ROOT

# What both judge. The judge's other kinds are about time, about ended queries, and about what is in a target.
BOTH = (LOST, TWICE, MISORDERED, PHANTOM, OWNERS)
_SOURCE = Path(__file__).parent / "linearizable"
_BUILT = ROOT / ".linearizable"  # git ignores it
_LIMIT_S, _BUILD_S = 60, 300
NO_GO = "cross-check: there is no program `go` on the PATH"
UNRECORDED = "cross-check of owners: the consumers, as those with Spark, did not write down what they commit"


class NotBuiltError(Exception):
    """Why the checker cannot run here."""


class NothingToBuildWithError(NotBuiltError):
    """There is no Go, or Porcupine cannot be fetched."""


@functools.cache
def checker() -> Path:
    """The program, as its source is now.

    Raises
    ------
    NotBuiltError
    """
    go = shutil.which("go")
    if go is None:
        raise NothingToBuildWithError(NO_GO)
    _go(NothingToBuildWithError, go, "mod", "download")
    _BUILT.mkdir(exist_ok=True)
    program, new = _BUILT / "linearizable", _BUILT / f"new-{uuid.uuid4().hex[:8]}"  # several processes may build it
    _go(NotBuiltError, go, "build", "-trimpath", "-o", str(new), ".")
    os.replace(new, program)
    return program


def _go(error: type[NotBuiltError], *command: str) -> None:
    """Run a command of Go among the sources."""
    what = f"cross-check: `go {' '.join(command[1:3])}`"
    try:
        done = subprocess.run(command, check=False, cwd=_SOURCE, capture_output=True, text=True, timeout=_BUILD_S)
    except subprocess.TimeoutExpired:
        raise error(f"{what} took longer than {_BUILD_S} s") from None
    if done.returncode:
        raise error(f"{what} failed: {done.stderr.strip()[-300:]}")


def operations(evidence: Evidence) -> Iterator[Operation]:
    """What the processes of a history did. Who owns what is left out of a group that did not write down its commits."""
    yield from Order(evidence).operations()
    for group, records in evidence.records.items():
        commits = evidence.commits.get(group, [])
        if recorded(evidence, group):
            found = Ownership(group, records, evidence.facts[group], commits).operations()
            yield from found
            # When all has ended, each partition is read to its end.
            for partition, end in evidence.ends.items():
                register = {"model": "ownership", "register": f"{group}/{partition}"}
                yield {**register, "op": "end", "call": round(evidence.end * 1e9), "offset": end}


def recorded(evidence: Evidence, group: str) -> bool:
    """Whether the consumers of a group wrote down what they commit."""
    return any(line["kind"] == "acknowledge" for line in evidence.commits.get(group, []))


def cross_check(evidence: Evidence, record: Path | None = None) -> dict[str, Any]:
    """What Porcupine says, as the program prints it. `record` gets the operations, one a line, if it does not say that all is well.

    Raises
    ------
    NotBuiltError
    """
    lines = "".join(json.dumps(operation) + "\n" for operation in operations(evidence))
    command = [str(checker()), "-limit", f"{_LIMIT_S}s"]
    done = subprocess.run(command, check=False, input=lines, capture_output=True, text=True, timeout=_LIMIT_S + 60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    if record is not None and found["verdict"] != "ok":
        record.write_text(lines)
    return found


def compare(evidence: Evidence, verdict: Verdict, record: Path | None = None) -> list[str]:
    """Add to the verdict what the second judge says, and where the two disagree; returns what could not be checked."""
    try:
        told = cross_check(evidence, record)
    except NotBuiltError as error:
        return [str(error)]
    count, seconds = sum(told["operations"].values()), round(told["seconds"], 2)
    verdict.figures |= {"cross-check": told["verdict"], "operations": count, "cross-check s": seconds}
    first = any(kind in BOTH for kind, _ in verdict.findings)
    if (told["verdict"] == "illegal") != first and told["verdict"] != "unknown":
        text = f"the cross-check says {told['verdict']}, the judge does not: {explained(told)}"
        verdict.findings.append((DISAGREED, text))
    not_done = [] if all(recorded(evidence, group) for group in evidence.records) else [UNRECORDED]
    if told["verdict"] == "unknown":
        not_done.append(f"cross-check: it did not end within {_LIMIT_S} s")
    return not_done


def explained(told: dict[str, Any]) -> str:
    """The smallest register that nothing explains, and what cannot come next in it."""
    if not told["illegal"]:
        return "every register can be explained"
    found = told["illegal"][0]
    after = f"{found['explained']} of {found['operations']} operations of {found['model']} {found['register']}"
    stuck = "; ".join(f"{one['why']} ({one['operation']})" for one in found["next"][:3])
    return f"{after} can be explained, then {found['state']}: {stuck}"
