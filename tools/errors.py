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

{count} kinds of bad input. The tests run each row, without Spark, and look that nothing changed in the store, except where a row says *begun*: that stays, and
goes on when the call is made again; files that no log names are deleted by `maintain`. A query that fails later may have joined its group.

The rows are about a store at STORE: queue `q` has the columns `k string, v bigint`, the key `k` and 2 partitions with 20 messages, of which group `g` has read
some; queue `other` has the column `v string`. THERE is the path of another store, FOLDER the folder of both, FILE a Parquet file. What stands for Spark:
`read(store, queue, …)` is `spark.read.format("partq")` with these options, `consume(store, queue, …)` is `spark.readStream`, with a checkpoint;
`write(store, batch_id=…)` is a micro-batch of sink `s`, `rows(…)` a DataFrame with these columns. `batch(…)` is a micro-batch that group `g` reads from queue `q`, in a
`foreachBatch` function; a column may be left out or have another type, and `rejected('bad')` is one whose function has rejected messages as `bad`. `hours_ahead(…)` does it with a clock that is wrong; `asked(…)` is an assignor of the user that answers so, and `taken_over`
starts the same instance again while it runs.
"""


def page() -> str:
    return "\n".join(
        [HEAD, *(section(cls) for cls in classes()), INPUT.format(count=len(EVERY)), *map(table, SECTIONS)]
    )


def classes() -> Iterator[type[PartqError]]:
    """In the order of the file that defines them."""
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
    """As it stands: a table ends its cells at bars, also in code."""
    fence = "``" if "`" in text else "`"
    pad = " " if "`" in text else ""
    return f"{fence}{pad}{text.replace('|', chr(92) + '|')}{pad}{fence}"


def one_line(text: str) -> str:
    return " ".join(text.split())


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
