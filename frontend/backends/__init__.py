"""torch.backends: switches of what kernels may do."""

from . import cuda as cuda
