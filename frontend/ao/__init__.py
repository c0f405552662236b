"""torch.ao: quantization's names, for packages that name them while they are imported."""

from . import quantization as quantization
