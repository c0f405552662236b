"""torch.ao.nn: layers with quantized weights."""

from . import intrinsic as intrinsic
from . import qat as qat
from . import quantizable as quantizable
from . import quantized as quantized
