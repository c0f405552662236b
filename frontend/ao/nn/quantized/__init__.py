"""torch.ao.nn.quantized: the layers of `quantize_dynamic`. Layers of static quantization, whose
inputs and results are quantized tensors, are not there."""

from . import dynamic as dynamic
from .functional_modules import FloatFunctional, FXFloatFunctional

__all__ = ["FXFloatFunctional", "FloatFunctional", "dynamic"]
