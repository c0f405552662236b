"""torch.nn.utils: functions over the parameters of a model, and sequences of unequal length."""

import importlib
from typing import TYPE_CHECKING

from ... import paths
from . import rnn
from .gradients import (
    clip_grad_norm,
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)

if TYPE_CHECKING:
    from . import parametrizations, parametrize, prune
    from .fusion import (
        fuse_conv_bn_eval,
        fuse_conv_bn_weights,
        fuse_linear_bn_eval,
        fuse_linear_bn_weights,
    )
    from .hooked_norms import remove_weight_norm, weight_norm
    from .hooked_spectra import remove_spectral_norm, spectral_norm
    from .layouts import (
        convert_conv2d_weight_memory_format,
        convert_conv3d_weight_memory_format,
    )
    from .skipping import skip_init

__all__ = [
    "clip_grad_norm",
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "convert_conv2d_weight_memory_format",
    "convert_conv3d_weight_memory_format",
    "get_total_norm",
    "parameters_to_vector",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "skip_init",
    "spectral_norm",
    "weight_norm",
    "rnn",
    "vector_to_parameters",
]


# These build on modules, which build on this package.
_LATER = {
    "fusion": "fuse_conv_bn_eval fuse_conv_bn_weights fuse_linear_bn_eval fuse_linear_bn_weights",
    "skipping": "skip_init",
    "hooked_norms": "weight_norm remove_weight_norm",
    "hooked_spectra": "spectral_norm remove_spectral_norm",
    "layouts": "convert_conv2d_weight_memory_format convert_conv3d_weight_memory_format",
}
_HOMES = {name: home for home, names in _LATER.items() for name in names.split()}
_ROOMS = ("fusion", "parametrizations", "parametrize", "prune")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            value = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
            globals()[name] = value
            return value
        if name in _ROOMS:
            return importlib.import_module(f".{name}", __name__)
        return paths.found(__name__, name)
