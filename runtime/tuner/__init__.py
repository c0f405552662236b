"""The tuner: it measures schedules of kernels, once, and keeps what it found.

`engines` knows what can be chosen on a device (`gpu` on one of CUDA, `users` for kernels that the
user wrote), `search` in which order it is tried, `bench` and `worker` measure it in a process of
its own on what `operands` gives it, `session` ties these together and writes to `database`.
`choices` is what the rest of the runtime asks: the schedule of a kernel, and where it is from;
`portable` reads and writes the file that a project keeps.
"""
