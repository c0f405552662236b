"""AMD's GPUs: HIP's driver, by which `runtime/cuda` launches kernels compiled for gfx9."""
