"""A line that runs in a test may still be wrong: mutants show whether a test would notice.

mutations   small changes of the product's code, by mutmut's operators; which of its code none is made of
recording   which test runs which lines, and how long it takes
choice      the tests for one mutant, and in which order
trial       a mutant, and the tests that should fail with it, in a process of its own
report      the figures of a run, and whether enough were caught
accepted    mutants that no test can catch, each with the reason, in `accepted.toml`
``python -m tests.mutants --sample 500`` draws mutants and tries each.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]  # not from `tests.helpers`, which loads the product
