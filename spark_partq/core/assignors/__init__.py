"""Assignors: pure functions from flows and partitions to who shall own what."""
