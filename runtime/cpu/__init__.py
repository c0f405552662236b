"""The CPU: NumPy programs, native kernels, and what falls back to the host."""
