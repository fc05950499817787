"""A group of consumers without Spark or Delta: stores in memory that fail on demand, and a simulator that runs the real core."""
