"""Write docs/errors.md: each class of errors, from its docstring and its attributes, and each kind of bad input that the tests try."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from spark_partq.core import errors
from spark_partq.core.errors import PartqError
from spark_partq.demo.jobs import DemoError
from tests.refused.case import Case
from tests.refused.cases import EVERY, SECTIONS

PAGE = Path(__file__).parents[1] / "docs" / "errors.md"

HEAD = """\
# Errors

Every error of this package is a `PartqError`. Its text begins with its class in brackets, and says what is involved and what to do next.
Unless a row says otherwise nothing has changed when it is raised. `python -m tools.errors` makes this page, from the classes and from the rows that
[the tests](../tests/refused/test_refused.py) run.

```python
import spark_partq as partq

try:
    partq.describe_queue("store", "orders")
except partq.QueueNotFoundError as error:
    print(error.error_class, error.params, error.message)
```

- `error_class` is stable and meant for programs, `params` has the names that are involved, `message` is the text without the class.
- In a query Spark raises its own error, with the text of ours in it: look for `[CLASS]`. The command prints one line, `error: [CLASS] message`,
  and ends with exit code 1; it ends with 2 if it is used wrongly.
- *Retry* says whether the same call may succeed later. A query that is started again goes on from its checkpoint.

## Classes
"""

INPUT = """\
## What is refused, and how

The tables list {count} kinds of bad input. The tests run each row without Spark, and check that nothing has changed in the store. The exception is a row with *begun*:
what the call has begun stays, and the same call goes on with it when it is made again. `maintain` deletes files that no log names. A query that fails later may have joined its group.

The rows are about a store at STORE. Its queue `q` has the columns `k string, v bigint`, the key `k` and 2 partitions with 20 messages; group `g` has read some of them.
Its queue `other` has the column `v string`. THERE is the path of another store, FOLDER the folder that holds both stores, and FILE a Parquet file.

These functions take the place of Spark:

- `read(store, queue, …)` is `spark.read.format("partq")` with these options.
- `consume(store, queue, …)` is `spark.readStream` with these options and a checkpoint.
- `write(store, batch_id=…)` writes a micro-batch of sink `s`.
- `rows(…)` is a DataFrame with these columns.
- `batch(…)` is a micro-batch in a `foreachBatch` function, which group `g` reads from queue `q`. A column may be left out or have another type.
- `rejected('bad')` is such a micro-batch in which the function has rejected messages for the reason `bad` before.
- `hours_ahead(…)` makes the call while the clock of this machine is wrong.
- `asked(…)` calls an assignor of the user that gives this answer.
- `taken_over` starts the same instance again while it runs.
"""


def page() -> str:
    return "\n".join(
        [HEAD, *(section(cls) for cls in classes()), INPUT.format(count=len(EVERY)), *map(table, SECTIONS)]
    )


def classes() -> Iterator[type[PartqError]]:
    """The classes, in the order of the file that defines them."""
    for cls in vars(errors).values():
        if isinstance(cls, type) and issubclass(cls, PartqError) and cls is not PartqError:
            yield cls
    yield DemoError


def section(cls: type[PartqError]) -> str:
    bases = [f"`{base.__name__}`" for base in cls.__mro__[1:] if issubclass(base, PartqError)]
    return "\n".join(
        [
            f"### {cls.error_class}",
            "",
            f"`{cls.__name__}`, a {', a '.join(bases)}.",
            "",
            f"- **When.** {one_line(cls.__doc__ or '')}",
            f"- **What to do.** {cls.next_step}",
            f"- **Retry.** {cls.retry}",
            "",
        ]
    )


def table(title: str) -> str:
    rows = [row(case) for case in SECTIONS[title]]
    return "\n".join([f"### {title}", "", "| given | state before | error | message |", "|---|---|---|---|", *rows, ""])


def row(case: Case) -> str:
    given = code(f"spark-partq {case.given}" if case.by_command else case.given)
    error = f"[`{case.error.error_class}`](#{case.error.error_class.lower()})" if case.error else "exit code 2"
    before = case.before + (" *(begun)*" if case.begun else "")
    return f"| {given} | {before.replace('|', chr(92) + '|')} | {error} | {code(case.begins)}… |"


def code(text: str) -> str:
    """The text as code, with bars escaped: a bar ends a cell of a table, also in code."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text.replace('|', chr(92) + '|')}{pad}{fence}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
