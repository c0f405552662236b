"""torch.ao: quantization, and the layers that it makes."""

from . import nn as nn
from . import quantization as quantization
