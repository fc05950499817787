"""A campaign of faults: real driver processes on a real store, what is done to them, and a judge of what came out.

``python -m tests.faults --histories 10 --seed 1`` runs it; docs/reliability.md says what each part does.
"""
