"""Results of tuning, and their storage.

Devices ask `choices` for the schedule of a kernel and its origin. `place` tells whether there are
results at all. `database` stores a `record` for each `key`. `portable` reads and writes the file
that a project keeps.
"""
