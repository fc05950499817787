"""A simulation that finds nothing proves nothing: bugs that it must catch.

bugs    what a planted bug is
setups  in which runs bugs can show
hunt    runs with a bug planted
table   all bugs; the other modules have them by subject
``python -m tests.testing.planted --find`` looks for the first seed that shows each bug, and keeps it in `seeds.json`.
"""
