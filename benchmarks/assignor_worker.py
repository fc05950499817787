"""The measured process of `assignors` on our side: ``python -m benchmarks.assignor_worker``.

It speaks as java/KafkaAssignors.java does. Lines on standard input: "case FILE ASSIGNOR" reads a case, "arrays" and "names" assign
it once and answer with the nanoseconds that took, the number of partitions assigned, and the fewest and the most that a member
got; "peak" answers with the most memory that the process has had, in kB.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.peak import peak_kb
from spark_partq.core.assignors import BUILTIN, Assignor, Member, assign
from spark_partq.core.assignors.claims import resolve_claims
from spark_partq.core.assignors.model import Problem, in_kafkas_order, make_problem


class Case:
    """Members and queues as a caller has them, and the arrays made of them."""

    def __init__(self, file: Path, name: str) -> None:
        self.assignor: Assignor = BUILTIN[name]
        self.counts: dict[str, int] = {}
        self.members: list[Member] = []
        queues: list[str] = []
        with file.open() as lines:
            for line in lines:
                kind, *field = line.rstrip("\n").split("\t")
                if kind == "queue":
                    queues.append(field[0])
                    self.counts[field[0]] = int(field[1])
                    continue
                wanted = [queues[int(i)] for i in field[2].split(",")]
                pairs = (pair.split(":") for pair in field[3].split(",") if pair)
                owned = [(queues[int(i)], int(number)) for i, number in pairs]
                self.members.append(Member(field[0], wanted, None, owned, int(field[1])))
        problem = make_problem(in_kafkas_order(self.members), self.counts)
        self.problem: Problem = replace(problem, current=resolve_claims(problem, self.members).owners)

    def arrays(self) -> str:
        problem = self.problem
        fresh = Problem(
            problem.members, problem.queues, problem.counts, problem.current, problem.subscriptions
        )  # with nothing computed yet
        began = time.perf_counter_ns()
        owners = self.assignor.owners(fresh)
        took = time.perf_counter_ns() - began
        sizes = np.bincount(owners, minlength=len(problem.members))
        return f"{took} {sizes.sum()} {sizes.min()} {sizes.max()}"

    def names(self) -> str:
        began = time.perf_counter_ns()
        result = assign(self.assignor.name, self.members, self.counts)
        took = time.perf_counter_ns() - began
        sizes = [len(mine) for mine in result.values()]
        return f"{took} {sum(sizes)} {min(sizes)} {max(sizes)}"


def main() -> None:
    case: Case | None = None
    for line in sys.stdin:
        word = line.rstrip("\n").split("\t")
        if word[0] == "case":
            case = None  # the former one can be collected now
            case = Case(Path(word[1]), word[2])
            answer = "ready"
        elif word[0] == "peak":
            answer = str(peak_kb())
        else:
            assert case is not None
            answer = case.arrays() if word[0] == "arrays" else case.names()
        print(answer, flush=True)


if __name__ == "__main__":
    main()
