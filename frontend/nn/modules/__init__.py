"""torch.nn.modules: the paths at which PyTorch defines its layers.

`_PATHS` says what each module there holds and where that stands here. The modules are made of it,
so `from torch.nn.modules.conv import _ConvNd` finds the very class that our layers derive from.
"""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from . import utils as utils

_BATCH_NORMS = "BatchNorm1d BatchNorm2d BatchNorm3d"
_INSTANCE_NORMS = "InstanceNorm1d InstanceNorm2d InstanceNorm3d"

_PATHS: dict[str, dict[str, str]] = {
    "activation": {
        "activation": "CELU ELU GELU GLU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU "
        "LogSigmoid LogSoftmax Mish PReLU ReLU ReLU6 RReLU SELU Sigmoid SiLU Softmax Softmax2d "
        "Softmin Softplus Softshrink Softsign Tanh Tanhshrink Threshold",
        "multihead": "MultiheadAttention",
    },
    "adaptive": {"adaptive": "_ASMoutput AdaptiveLogSoftmaxWithLoss"},
    "batchnorm": {
        "normalization": f"_BatchNorm _NormBase {_BATCH_NORMS} SyncBatchNorm",
        "lazy": "LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d",
    },
    "channelshuffle": {"resampling": "ChannelShuffle"},
    "container": {
        "container": "Container ModuleDict ModuleList ParameterDict ParameterList Sequential"
    },
    "conv": {
        "conv": "_ConvNd _ConvTransposeMixin _ConvTransposeNd Conv1d Conv2d Conv3d ConvTranspose1d "
        "ConvTranspose2d ConvTranspose3d",
        "lazy": "LazyConv1d LazyConv2d LazyConv3d LazyConvTranspose1d LazyConvTranspose2d "
        "LazyConvTranspose3d",
    },
    "distance": {"loss": "CosineSimilarity PairwiseDistance"},
    "dropout": {
        "dropout": "_DropoutNd AlphaDropout Dropout Dropout1d Dropout2d Dropout3d "
        "FeatureAlphaDropout",
    },
    "flatten": {"shape": "Flatten Unflatten"},
    "fold": {"conv": "Fold Unfold"},
    "instancenorm": {
        "normalization": f"_InstanceNorm {_INSTANCE_NORMS}",
        "lazy": "LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d",
    },
    "lazy": {"lazy": "LazyModuleMixin"},
    "linear_cross_entropy_options": {"chunking": "LinearCrossEntropyOptions"},
    "linear": {
        "linear": "Bilinear Identity Linear",
        "multihead": "NonDynamicallyQuantizableLinear",
        "lazy": "LazyLinear",
    },
    "loss": {
        "loss": "_Loss _WeightedLoss BCELoss BCEWithLogitsLoss CosineEmbeddingLoss "
        "CrossEntropyLoss CTCLoss GaussianNLLLoss HingeEmbeddingLoss HuberLoss KLDivLoss L1Loss "
        "LinearCrossEntropyLoss MarginRankingLoss MSELoss MultiLabelMarginLoss "
        "MultiLabelSoftMarginLoss MultiMarginLoss NLLLoss NLLLoss2d PoissonNLLLoss SmoothL1Loss "
        "SoftMarginLoss TripletMarginLoss TripletMarginWithDistanceLoss",
    },
    "module": {
        "module": "Module",
        "state": "_EXTRA_STATE_KEY_SUFFIX _IncompatibleKeys",
        "global_hooks": "register_module_backward_hook register_module_buffer_registration_hook "
        "register_module_forward_hook register_module_forward_pre_hook "
        "register_module_full_backward_hook register_module_full_backward_pre_hook "
        "register_module_module_registration_hook register_module_parameter_registration_hook "
        "_global_buffer_registration_hooks _global_module_registration_hooks "
        "_global_parameter_registration_hooks",
    },
    "normalization": {
        "normalization": "CrossMapLRN2d GroupNorm LayerNorm LocalResponseNorm RMSNorm"
    },
    "padding": {
        "shape": "_CircularPadNd _ConstantPadNd _ReflectionPadNd _ReplicationPadNd CircularPad1d "
        "CircularPad2d CircularPad3d ConstantPad1d ConstantPad2d ConstantPad3d ReflectionPad1d "
        "ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d "
        "ZeroPad1d ZeroPad2d ZeroPad3d",
    },
    "pixelshuffle": {"conv": "PixelShuffle", "resampling": "PixelUnshuffle"},
    "pooling": {
        "pooling": "_AdaptiveAvgPoolNd _AdaptiveMaxPoolNd _AvgPoolNd _LPPoolNd _MaxPoolNd "
        "AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
        "AdaptiveMaxPool2d AdaptiveMaxPool3d AvgPool1d AvgPool2d AvgPool3d LPPool1d LPPool2d "
        "LPPool3d MaxPool1d MaxPool2d MaxPool3d",
        "unpooling": "_MaxUnpoolNd FractionalMaxPool2d FractionalMaxPool3d MaxUnpool1d "
        "MaxUnpool2d MaxUnpool3d",
    },
    "rnn": {"rnn": "apply_permutation GRU GRUCell LSTM LSTMCell RNN RNNBase RNNCell RNNCellBase"},
    "sparse": {"embedding": "Embedding EmbeddingBag"},
    "transformer": {
        "transformer": "_get_activation_fn Transformer TransformerDecoder TransformerDecoderLayer "
        "TransformerEncoder TransformerEncoderLayer",
    },
    "upsampling": {"resampling": "Upsample UpsamplingBilinear2d UpsamplingNearest2d"},
}
"""For each module below torch.nn.modules: our module -> what of it is there."""


def _made(path: str, homes: dict[str, str]) -> ModuleType:
    """The module at a path, which imports find from now on."""
    name = f"{__name__}.{path}"
    module = ModuleType(name, f"torch.nn.modules.{path}.")
    module.__spec__ = ModuleSpec(name, None)
    for home, names in homes.items():
        ours = importlib.import_module(f"..{home}", __name__)
        for each in names.split():
            setattr(module, each, getattr(ours, each))
    module.__all__ = [n for n in vars(module) if not n.startswith("_")]  # type: ignore[attr-defined]
    return sys.modules.setdefault(name, module)


for _path, _homes in _PATHS.items():
    _module = _made(_path, _homes)
    # A layer and a module never have the same name: those of modules are in lower case.
    globals().update({n: getattr(_module, n) for n in _module.__all__} | {_path: _module})
__all__ = sorted(n for n in globals() if n[0].isupper())
del _module


def __getattr__(name: str) -> object:
    raise AttributeError(
        f"tilewright.nn.modules has no {name!r}: it is not a name of PyTorch's, or not implemented "
        "yet"
    )


def path_of(layer: type) -> str:
    """The full name of a layer's class as PyTorch has it: torch.nn.modules.conv.Conv2d. A class
    that isn't one of PyTorch's layers has its own."""
    home = layer.__module__.removeprefix(f"{__package__.rpartition('.')[0]}.")
    for path, homes in _PATHS.items():
        if layer.__name__ in homes.get(home, "").split():
            return f"torch.nn.modules.{path}.{layer.__name__}"
    return f"{layer.__module__}.{layer.__qualname__}"
