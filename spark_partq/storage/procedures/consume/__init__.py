"""A query's side of a consumer group: what Spark's planner process does, without Spark.

settings      what the query was asked for
subscription  the queues that it reads, as they are now
membership    joining, releasing and leaving the group; heartbeats and decisions between planner calls
planner       the micro-batches
application   the user's driver, which is told what became of the partitions
"""
