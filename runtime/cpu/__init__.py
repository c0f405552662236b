"""The CPU device: native kernels, and NumPy programs."""
