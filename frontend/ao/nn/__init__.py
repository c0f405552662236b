"""torch.ao.nn: layers with quantized weights."""

from . import intrinsic as intrinsic
from . import quantized as quantized
