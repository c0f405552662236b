"""CUDA devices: NVIDIA's driver alone launches compiled Triton kernels.

Only `driver` knows libcuda. Contexts and streams, memory, copies, launches and graphs build on it.
`device` has the Device that plans run on.
"""
