"""Settings of a queue as options and from a file."""

from __future__ import annotations

import functools
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

import spark_partq as partq
from spark_partq.cli.common import named_values
from spark_partq.core.queue.settings import QueueSettings

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NONE = "none"  # how a person writes that a setting is not there
_DURATION = re.compile(r"(\d+) *(ms|s|m|h|d)?")


def duration_ms(value: object, setting: str = "") -> int:
    """Milliseconds from a number of them or a text such as ``250ms``, ``5s``, ``10m``, ``12h``, ``7d``; an error names the setting, if it is one.

    Raises
    ------
    InvalidArgumentError
        If it is neither.

    Examples
    --------
    >>> duration_ms("7d"), duration_ms("1500"), duration_ms(0)
    (604800000, 1500, 0)
    """
    found = _DURATION.fullmatch(str(value).strip()) if isinstance(value, (int, str)) else None
    if found is None or isinstance(value, bool):
        what = f"{setting}: {value!r}" if setting else repr(value)
        raise partq.InvalidArgumentError(
            f"{what} is no duration; give milliseconds, or a number with ms, s, m, h or d", value=value
        )
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def without_codes(text: str) -> str:
    """The text without the codes of promises, such as (R5), which are for developers."""
    return re.sub(r" \([A-Z]\d+(?:, [A-Z]\d+)*\)", "", text)


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Give `command` an option for each field of `QueueSettings`; it gets them as ``settings``, those that were given."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        given = {name: arguments.pop(name) for name in QueueSettings.model_fields}
        command(**arguments, settings={name: value for name, value in given.items() if value is not None})

    parameters = dict(inspect.signature(command, eval_str=True).parameters)
    del parameters["settings"]
    for name, field in QueueSettings.model_fields.items():
        flag = "--" + name.replace("_", "-")
        shape = "MS|5s|7d" if name.endswith("_ms") else "VALUE"
        default = "none" if field.default is None else field.default
        option = typer.Option(
            flag,
            metavar=shape,
            help=f"{without_codes(field.description or '')} (default: {default})",
            rich_help_panel="Settings of the queue",
        )
        annotation = Annotated[str | None, option]
        parameters[name] = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: p.annotation for name, p in parameters.items()}
    return run


def settings_in_help() -> str:
    """All settings, for the end of a command's help."""
    told = (f"{name} ({without_codes(field.description or '')})" for name, field in QueueSettings.model_fields.items())
    return f"Settings: {'; '.join(told)}."


def parse_settings(given: list[str]) -> dict[str, Any]:
    """Settings of ``name=value`` each; durations as milliseconds, ``none`` where a setting may be none.

    Raises
    ------
    typer.BadParameter
        If something is of another form, or named twice.
    """
    return {name: _value(name, value) for name, value in named_values("--set", given, "name=value").items()}


def _value(name: str, text: str) -> Any:
    if text == _NONE and _may_be(type(None), name):
        return None
    if _may_be(int, name) and re.fullmatch(r"-?\d+", text):
        return int(text)
    # What is no duration either is refused with all that is wrong.
    return duration_ms(text) if name.endswith("_ms") and _DURATION.fullmatch(text) else text


def _may_be(kind: type, name: str) -> bool:
    field = QueueSettings.model_fields.get(name)
    if field is None:
        return False
    types = field.annotation, *get_args(field.annotation)
    return kind in [getattr(one, "__origin__", one) for one in types]  # without what Annotated adds


def read_settings(file: Path | None, given: dict[str, str]) -> dict[str, Any]:
    """Settings of a TOML file, and over them those that were given as options; durations as milliseconds."""
    values: dict[str, Any] = {}
    if file is not None:
        try:
            values = tomllib.loads(file.read_text())
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise partq.InvalidArgumentError(f"--settings {file}: {error}", file=file) from None
    values |= {name: text if name.endswith("_ms") else _value(name, text) for name, text in given.items()}
    durations = {name: v for name, v in values.items() if name.endswith("_ms")}
    values |= {n: None if v == _NONE and _may_be(type(None), n) else duration_ms(v, n) for n, v in durations.items()}
    QueueSettings.parse(values)  # a file may name other arguments of create_queue, which are no settings
    return values
