"""A year of flights through a queue: `spark-partq demo`."""
