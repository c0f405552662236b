"""torch.ao.nn.quantized: layers of quantized tensors, and those of `quantize_dynamic`.

Scales of results are set by hand, or by `torch.ao.quantization.convert`, from what observers saw.
"""

from . import dynamic as dynamic
from . import functional as functional
from .functional_modules import FloatFunctional, FXFloatFunctional
from .layers import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    DeQuantize,
    Linear,
    Quantize,
    ReLU6,
)
from .observed import LSTM, MultiheadAttention
from .operations import QFunctional
from .pointwise import (
    ELU,
    BatchNorm2d,
    BatchNorm3d,
    Dropout,
    GroupNorm,
    Hardswish,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
    LeakyReLU,
    PReLU,
    Sigmoid,
    Softmax,
)
from .tables import Embedding, EmbeddingBag

__all__ = [
    "LSTM",
    "MultiheadAttention",
    "ELU",
    "BatchNorm2d",
    "BatchNorm3d",
    "Dropout",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "PReLU",
    "Sigmoid",
    "Softmax",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "Linear",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "dynamic",
    "functional",
]
