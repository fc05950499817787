"""The examples in the docstrings of the pure part are right."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import spark_partq.core


@pytest.mark.parametrize(
    "name", [m.name for m in pkgutil.walk_packages(spark_partq.core.__path__, "spark_partq.core.")]
)
def test_examples(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
