"""The steps of a decision: what each event leads to, and what follows from that.

Each function takes the `Decision` that is being made and adds facts to it. Each module uses only those above it:

decision       the facts so far, and the state after them
ownership      who owns a partition, from which offset on
rebalancing    who shall own what; how a rebalance goes on
holddown       what waits when flows come and go, and when that ends
leaving        members and flows that go
queue_changes  queues and partitions that come and go
joining        members that come, or come back
handoff        partitions that were released, or not in time
"""
