"""K1: assignors of installed packages are found by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_partq.core.assignors import BUILTIN, Member, target
from spark_partq.core.errors import AssignorError, UnknownAssignorError
from spark_partq.storage.group.assignors import find, known

MODULE = '''
class First:
    """Everything to the first member."""

    name, cooperative = "first", False

    def assign(self, members, partition_counts, previous):
        return {members[0].id: [(queue, n) for queue, count in partition_counts.items() for n in range(count)]}


instance = First()
instance.name = "instance"


class Renamed(First):
    name = "another"


class Fails(First):
    name = "fails"

    def __init__(self):
        raise OSError("no licence")


not_one = object()
'''

ENTRIES = """[spark_partq.assignors]
first = partq_plugin_of_tests:First
instance = partq_plugin_of_tests:instance
renamed = partq_plugin_of_tests:Renamed
fails = partq_plugin_of_tests:Fails
not_one = partq_plugin_of_tests:not_one
missing = partq_plugin_that_is_not_there:First
range = partq_plugin_of_tests:First
"""


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A distribution as pip would install it."""
    (tmp_path / "partq_plugin_of_tests.py").write_text(MODULE)
    info = tmp_path / "partq_plugin_of_tests-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: partq-plugin-of-tests\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRIES)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.usefixtures("plugins")
def test_known() -> None:
    assert known() == [*BUILTIN, "fails", "first", "instance", "missing", "not_one", "renamed"]


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("name", ["first", "instance"])
def test_a_class_and_an_object(name: str) -> None:
    assignor = find(name)
    assert (assignor.name, assignor.cooperative) == (name, False)
    assert target(assignor, [Member("b", ["q"]), Member("a", ["q"])], {"q": 2}, {}) == {("q", 0): "a", ("q", 1): "a"}


@pytest.mark.usefixtures("plugins")
def test_a_built_in_name_means_the_built_in_one() -> None:
    assert find("range") is BUILTIN["range"]


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("renamed", "calls itself 'another'"),
        ("fails", "OSError: no licence"),
        ("not_one", "has no name and no cooperative and no assign"),
        ("missing", "ModuleNotFoundError"),
    ],
)
def test_one_that_cannot_be_used(name: str, message: str) -> None:
    with pytest.raises(AssignorError, match=message) as e:
        find(name)
    assert e.value.params == {"assignor": name}


@pytest.mark.parametrize("name", BUILTIN)
def test_built_in(name: str) -> None:
    assert find(name) is BUILTIN[name]


@pytest.mark.usefixtures("plugins")
def test_unknown() -> None:
    with pytest.raises(UnknownAssignorError, match="weighted, fails, first") as e:
        find("frist")
    assert e.value.error_class == "UNKNOWN_ASSIGNOR"
