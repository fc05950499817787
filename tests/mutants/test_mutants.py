"""Mutants are made of what the product does, and a run tells those that a test notices from those that none does."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.mutants import ROOT
from tests.mutants.accepted import Accepted, accepted, why
from tests.mutants.choice import Choice, in_order
from tests.mutants.mutations import Mutant, MutatedFile, files
from tests.mutants.recording import SIMULATION, Recorded
from tests.mutants.report import keep, told
from tests.mutants.trial import CAUGHT, HUNG, SURVIVED, Verdict

CODE = '''"""About the file."""
import logging

_log = logging.getLogger("a")
LIMIT = 5


class A:
    @property
    def b(self, c: int = 1) -> "A":
        """What it does."""
        if c > LIMIT:
            raise ValueError("too many", c + 1)
        _log.warning("many %s", c + 1)
        must_hold(c < 3, "three" + "or more")
        return cast("A", c)


def match(d):
    assert d > 1
    return d * 2
'''

# What loads the product with a mutant, and tries all mutants of one file with its tests and no simulation.
RUN = """
from tests.mutants.campaign import Campaign
from tests.mutants.choice import Choice
from tests.mutants.mutations import MutatedFile
from tests.mutants.recording import Recorded

path, tests = "spark_partq/core/names.py", "tests/core/test_names.py"
source = MutatedFile(path)
names = ["test_good_names[a]", "test_good_names[Orders-2.eu_west]", "test_bad_names[empty]", "test_names_that_are_no_text[3]"]
seconds = {f"{tests}::{name}": 1.0 for name in names}
recorded = Recorded(seconds=seconds, lines={test: {path: list(range(99))} for test in seconds})
CHANGE
campaign = Campaign(list(source.mutants()), {path: source}, 5.0, 2, Choice(recorded, 30.0), 0, 0.0)
campaign.run([tests])
print("stopped:", campaign.stopped)
print("outcomes:", sorted({verdict.outcome for _, verdict in campaign.verdicts}), len(campaign.verdicts) == source.count > 2)
"""


def test_texts_logging_and_types_have_no_mutants() -> None:
    changes = {(mutant.function, mutant.removed, mutant.added) for mutant in MutatedFile("a.py", CODE).mutants()}
    assert changes == {
        ("A.b", "if c > LIMIT:", "if c >= LIMIT:"),
        ("A.b", 'must_hold(c < 3, "three" + "or more")', 'must_hold(c <= 3, "three" + "or more")'),
        ("A.b", 'must_hold(c < 3, "three" + "or more")', 'must_hold(c < 4, "three" + "or more")'),
        ("match", "return d * 2", "return d / 2"),
        ("match", "return d * 2", "return d * 3"),
    }


def test_the_code_of_a_mutant_has_its_change_and_no_other() -> None:
    source = MutatedFile("a.py", CODE)
    for mutant in source.mutants():
        assert source.mutated(mutant.number) == CODE.replace(mutant.removed, mutant.added)
        ast.parse(source.mutated(mutant.number))


def test_the_fastest_test_of_each_function_comes_first() -> None:
    seconds = {"a[1]": 0.1, "a[2]": 0.2, "b[1]": 0.3, "c": 5.0}
    assert in_order(seconds) == ["a[1]", "b[1]", "c", "a[2]"]


def test_tests_that_run_the_line_are_chosen_within_the_time() -> None:
    mutant = next(m for m in MutatedFile("a.py", CODE).mutants() if m.added == "return d * 3")
    lines = {"on it": [21], "too": [21], "slow": [21], "before": [11], SIMULATION: [21]}
    recorded = Recorded(
        seconds={"on it": 1.0, "too": 2.0, "slow": 9.0, "before": 0.1, SIMULATION: 1.0},
        lines={test: {"a.py": at} for test, at in lines.items()},
    )
    assert Choice(recorded, 5.0).tests(mutant)[0] == ["on it", "too"]
    assert Choice(recorded, 20.0).tests(mutant) == (["on it", "too", "slow"], 12.0, True)
    assert Choice(Recorded(), 5.0).tests(mutant) == ([], 0.0, False)


def test_tests_of_the_file_of_that_name_come_first() -> None:
    """A line that thousands of tests run has one that looks at it."""
    mutant = next(m for m in MutatedFile("core/a.py", CODE).mutants() if m.added == "return d * 3")
    seconds = {"tests/test_b.py::x": 0.1, "tests/core/test_a.py::y": 1.0, "tests/core/test_a.py::z": 0.5}
    recorded = Recorded(seconds=seconds, lines={test: {"core/a.py": [21]} for test in seconds})
    assert Choice(recorded, 1.5).tests(mutant)[0] == ["tests/core/test_a.py::z", "tests/core/test_a.py::y"]


def run(change: str) -> list[str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", RUN.replace("CHANGE", change)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [line for line in done.stdout.splitlines() if line.startswith(("stopped", "outcomes"))]


def test_a_run_tells_what_is_caught() -> None:
    """Some tests of names catch all mutants of what makes a name."""
    assert run("") == ["stopped: ", "outcomes: ['caught'] True"]


@pytest.mark.long
def test_a_test_that_fails_without_a_mutant_stops_the_run() -> None:
    """Or every mutant would count as caught."""
    stopped, outcomes = run("source.code = source.code.replace('return', 'return None and')")
    assert "its tests fail without it" in stopped and outcomes.startswith("outcomes: []")


@pytest.mark.long
def test_a_test_that_only_waits_is_ended_soon() -> None:
    """It takes no time of a processor, which has a limit, too."""
    began_s = time.monotonic()
    stopped, _ = run(
        "import time; from tests.mutants import trial; trial.MOST_S, trial.MOST_TIMES = 1.0, 1.0; "
        "source.code = source.code.replace('return', 'import time; time.sleep(300); return')"
    )
    assert stopped.endswith("its tests fail without it: hung")
    assert time.monotonic() - began_s < 60


def test_accepted_mutants_are_of_code_that_there_is() -> None:
    known = set(files())
    for each in accepted():
        assert each.path in known and each.why, each
        lines = " ".join(line.strip() for line in (ROOT / each.path).read_text().splitlines())
        assert each.was in lines, each


def test_a_reason_is_of_the_mutants_that_it_names() -> None:
    mutant = next(m for m in MutatedFile("a.py", CODE).mutants() if m.added == "return d * 3")
    one = Accepted("a.py", "match", "return d * 2", "x", "return d * 3")
    assert why(mutant, [one]) == "x"
    assert why(mutant, [Accepted("a.py", "match", "return d * 2", "all of the line")]) == "all of the line"
    assert (
        why(
            mutant,
            [
                Accepted("a.py", "match", "return d * 2", "x", "return d / 2"),
                Accepted("b.py", "match", "return d * 2", "x"),
            ],
        )
        == ""
    )


def verdicts(caught: int, hung: int, survived: int, excused: int) -> list[tuple[Mutant, Verdict]]:
    """So many of each; those that are excused survive, too."""
    mutants = list(MutatedFile("spark_partq/core/a.py", CODE).mutants())
    plain, other = (next(m for m in mutants if m.added == added) for added in ("return d * 3", "return d / 2"))
    outcomes = [CAUGHT] * caught + [HUNG] * hung + [SURVIVED] * survived
    return [*((plain, Verdict(outcome)) for outcome in outcomes), *[(other, Verdict(SURVIVED))] * excused]


EXCUSE = Accepted("spark_partq/core/a.py", "match", "return d * 2", "x", "return d / 2")


@pytest.mark.parametrize(
    ("tried", "code", "says"),
    [
        ((9, 0, 1, 0), 0, "9 of 10 that are not accepted were caught, 90.0%: enough, at least 90 % are to be"),
        ((8, 1, 1, 0), 0, "9 of 10 that are not accepted were caught, 90.0%: enough, at least 90 % are to be"),
        ((89, 0, 11, 0), 1, "89 of 100 that are not accepted were caught, 89.0%: too few, at least 90 % are to be"),
        ((89, 0, 11, 900), 1, "89 of 100 that are not accepted were caught, 89.0%: too few, at least 90 % are to be"),
        ((9, 0, 1, 5), 0, "9 of 10 that are not accepted were caught, 90.0%: enough, at least 90 % are to be"),
        ((0, 0, 0, 2), 0, "0 of 0 that are not accepted were caught, 100.0%: enough, at least 90 % are to be"),
        ((0, 0, 0, 0), 1, "0 of 0 that are not accepted were caught, 100.0%: too few, at least 90 % are to be"),
    ],
)
def test_a_run_fails_if_too_few_are_caught(
    tried: tuple[int, int, int, int], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that are accepted count neither for nor against it; a run that tries nothing shows nothing."""
    assert told(verdicts(*tried), [EXCUSE]) == code
    *table, last = capsys.readouterr().out.splitlines()
    assert last == says
    assert table[-1].split()[:6] == ["all", *map(str, [sum(tried), tried[0], tried[1], tried[3], tried[2]])]


def test_a_report_has_every_verdict(tmp_path: Path) -> None:
    keep(tmp_path / "new" / "report.json", verdicts(1, 0, 1, 0), 7, 100)
    report = json.loads((tmp_path / "new" / "report.json").read_text())
    assert (report["seed"], report["of"]) == (7, 100)
    assert [mutant["outcome"] for mutant in report["mutants"]] == [CAUGHT, SURVIVED]
