"""A user's Delta table that a sink writes: read and committed through delta-rs, its files written by Spark's tasks."""
