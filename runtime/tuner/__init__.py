"""The tuner: it measures the schedules of kernels once, and stores the results.

`engines` finds the engine of a device, or of the user's kernels on it (`users`). `gpu` ranks
schedules for a GPU that isn't present. `search` orders the schedules to try. `bench` and `worker`
measure them in a separate process, with operands of `operands`. `session` ties these together and
writes to `results.database`.
"""
