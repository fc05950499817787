"""Tables as wide as the screen, in which no word is cut: a name that is not whole is of no use.

rich cuts a word that is longer than the width that its column gets. Here each column gets at least its longest word. A table that is
too wide even so is told in lines, one or more for each row, with the name of a column before each of its values.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from spark_partq.cli.plain import plain

Texts = Sequence[str]
_ANY = 100_000  # columns: wider than any table


def fitted(table: Table, console: Console) -> Table | list[str]:
    """The table, which is changed to fit the console, or the lines that tell the same."""
    columns = [[plain(str(cell), lines=True) for cell in column.cells] for column in table.columns]
    headers = [plain(str(column.header), lines=True) for column in table.columns]
    shown = [[header, *cells] for header, cells in zip(headers, columns, strict=True)]
    least = [max((cell_len(word) for text in texts for word in text.split()), default=0) for texts in shown]
    most = [max((cell_len(line) for text in texts for line in text.split("\n")), default=0) for texts in shown]
    edges = Measurement.get(console, console.options.update_width(_ANY), table).maximum - sum(most)
    spare = console.width - edges - sum(least)
    if spare < 0:
        return _in_lines(headers, list(zip(*columns, strict=True)), console.width)
    needs = sorted((most[n] - least[n], n) for n in range(len(most)))
    for left, (need, n) in zip(range(len(needs), 0, -1), needs, strict=True):
        given = min(need, spare // left)
        table.columns[n].width = least[n] + given
        spare -= given
    return table


def _in_lines(headers: Texts, rows: Sequence[Texts], width: int) -> list[str]:
    lines: list[str] = []
    for row in rows:
        values = [
            f"{header} {text}".strip()
            for header, cell in zip(headers, row, strict=True)
            if (text := ", ".join(cell.split("\n")))
        ]
        joined = f"{'  ' if not any(headers) else ', '}".join(values)
        lines += textwrap.wrap(joined, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    return lines
