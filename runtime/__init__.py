"""From kernels to results: devices, plans, buffers and caches."""
