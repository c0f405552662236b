"""What tuning found of kernels' schedules, and where it is kept.

`choices` is what devices ask: the schedule of a kernel, and where it is from. `place` says whether
there is anything to ask for, `database` keeps it, a `record` of each `key`; `portable` reads and
writes the file that a project keeps.
"""
