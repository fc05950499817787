"""Small files that would take much memory, and what it costs to refuse them, or to read them piece by piece."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

MOST_FILE_BYTES = 100_000
MOST_GROWTH_MB, MOST_CPU_S = 200, 1.0

# Imports and a first use count as what is there before.
_MEASURED = """
import resource, sys, time
from spark_partq.core.errors import CorruptTableError
{before}
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
mb, s = peak(), time.process_time()
try:
    {act}
except CorruptTableError as error:
    print(error)
else:
    print("taken")
print(peak() - mb, time.process_time() - s)
"""


def packed(table: pa.Table) -> bytes:
    """A Parquet file of less than a hundred kilobytes."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    data: bytes = sink.getvalue().to_pybytes()
    assert len(data) < MOST_FILE_BYTES
    return data


def one_text(text: str, n: int) -> pa.DictionaryArray:
    """A text that is written once, for so many rows."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * n, pa.int32()), pa.array([text]))


def refused_for_little(before: str, act: str, *arguments: str | Path) -> str:
    """The error with which another process refuses what it is to read, without much memory or time."""
    error, cpu_s = _for_little(before, act, *arguments)
    assert error != "taken" and cpu_s < MOST_CPU_S, (error, cpu_s)
    return error


def taken_for_little(before: str, act: str, *arguments: str | Path) -> None:
    """Another process reads it, without much memory."""
    assert _for_little(before, act, *arguments)[0] == "taken"


def _for_little(before: str, act: str, *arguments: str | Path) -> tuple[str, float]:
    code = _MEASURED.format(before=before, act=act)
    ended = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    *error, figures = ended.stdout.splitlines()
    growth_mb, cpu_s = map(float, figures.split())
    assert growth_mb < MOST_GROWTH_MB, figures
    return "\n".join(error), cpu_s
