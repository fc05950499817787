"""A simulation of everything at once: the procedures of this package as they are, on files and clocks of a simulated world.

scheduler  which thread runs next, and what time it is
process    a process of that world: its files, clocks, threads, and the faults that befall it
setup      what a run is made of, drawn from a seed
commands   those who produce, scale, maintain, replicate, promote, and so on
query      a streaming query: Spark's engine around the planner
results    a table into which applications write, of each message once
oracle     what must hold
unseen     looks at the stores that nobody notices, to find the end of a run
stored     what the logs of a store say
reader     what a group was given, and what it must not be given
decoding   keeps what was decoded
run        one run from beginning to end; the command line
"""
