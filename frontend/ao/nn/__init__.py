"""torch.ao.nn: layers with quantized weights."""

from . import quantized as quantized
