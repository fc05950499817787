"""What is given that cannot be, and what comes back: rows that `test_refused` runs, and that docs/errors.md shows."""
