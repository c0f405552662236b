"""CUDA devices: compiled Triton kernels launched through NVIDIA's driver, and through nothing else.

`driver` is the one place that knows libcuda; what lies above it are contexts and their streams,
memory, copies, launches and graphs, and in `device` the Device that plans run on.
"""
