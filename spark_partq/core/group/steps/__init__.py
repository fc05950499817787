"""The steps of a decision: what each event leads to, and what follows from that.

Each function takes the `Decision` that is being made and adds facts to it. Each module uses only modules above it:

decision       the facts so far, and the state after them
ownership      who owns a partition, from which offset on
rebalancing    who shall own what; how a rebalance goes on
holddown       the wait after flows have joined or left, and its end
leaving        members and flows that leave
queue_changes  queues and partitions that are added or removed
joining        members that join, or start again
resetting      positions that a person sets
handoff        partitions that were released, or not in time
"""
