"""A query's side of a consumer group: what Spark's planner process does, without Spark.

settings      what the query was asked for
subscription  the queues that it reads, as they are now
deleted       which of them were deleted
first_starts  where the group starts in partitions that it has never had
membership    joining, releasing and leaving the group
between_calls heartbeats, decisions and releases while micro-batches run
reports       what the application is told of it
loads         the load of each partition
planner       the micro-batches
application   the port to the user's driver, which calls listeners
"""
