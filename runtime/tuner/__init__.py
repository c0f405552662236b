"""The tuner: it measures schedules of kernels, once, and keeps what it found.

`engines` finds what can be chosen on a device: the device's own engine, or that of the kernels that
the user wrote (`users`); `gpu` ranks what a GPU could run that isn't there. `search` says in which
order schedules are tried, `bench` and `worker` measure them in a process of its own on what
`operands` gives them, `session` ties these together and writes to `results.database`.
"""
