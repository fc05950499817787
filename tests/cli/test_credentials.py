"""How the command gets credentials, and that it shows none."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

import spark_partq as partq
from spark_partq.cli.common import Target
from spark_partq.spark.jobs import key_values
from tests.cli.outcome import Command

SECRET = "SUPERSECRET123"


@pytest.mark.parametrize("wrong", [f"aws_secret_access_key:{SECRET}", f"={SECRET}", SECRET])
def test_an_option_that_is_misspelt_is_not_shown(run: Command, wrong: str) -> None:
    done = run("--storage-option", wrong, "list")
    assert done.code == 2 and "name=value" in done.err and SECRET not in done.out + done.err


def test_options_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text("# of the standby\n\naws_secret_access_key=a=b c\n aws_region=eu-west-1 \n")
    assert key_values([f"@{file}", "aws_region=nowhere"]) == {
        "aws_secret_access_key": "a=b c",
        "aws_region": "nowhere",
    }


def test_a_file_that_is_wrong(tmp_path: Path) -> None:
    file = tmp_path / "options"
    file.write_text(f"a=b\n{SECRET}\n")
    with pytest.raises(typer.BadParameter) as caught:
        key_values([f"@{file}"])
    assert str(caught.value) == f"line 2 of {file} is not of the form name=value"
    with pytest.raises(typer.BadParameter, match="cannot be read: No such file"):
        key_values(["@/nowhere"])
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(typer.BadParameter, match="it is no text"):
        key_values([f"@{file}"])


def test_options_from_the_environment(
    run: Command, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "options"
    file.write_text(f"aws_secret_access_key={SECRET}\n")
    seen: list[dict[str, str]] = []

    def list_queues(_: str, storage_options: dict[str, str]) -> list[str]:
        seen.append(storage_options)
        return []

    monkeypatch.setattr(partq, "list_queues", list_queues)
    monkeypatch.setattr(partq, "list_groups", list_queues)
    monkeypatch.setenv("SPARK_PARTQ_STORAGE_OPTIONS", f"@{file} aws_region=eu-west-1")
    assert run("--store", store, "list").code == 0
    assert seen == [{"aws_secret_access_key": SECRET, "aws_region": "eu-west-1"}] * 2
    assert SECRET not in repr(Target(store, seen[0]))


@pytest.mark.parametrize("command", ["replicate", "scale"])
def test_options_of_a_replica_from_the_environment(
    run: Command, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """A file that is not there shows that the command asks for it."""
    monkeypatch.setenv("SPARK_PARTQ_TO_OPTIONS", "@/nowhere")
    arguments = {"replicate": ["q", "--to", str(tmp_path / "there")], "scale": ["q", "3"]}[command]
    done = run("--store", store, command, *arguments)
    assert done.code == 2 and "/nowhere cannot be read" in done.err
