"""torch.nn.utils: functions over the parameters of a model, and sequences of unequal length."""

import importlib

from . import rnn
from .gradients import (
    clip_grad_norm_,
    clip_grad_value_,
    clip_grads_with_norm_,
    get_total_norm,
    parameters_to_vector,
    vector_to_parameters,
)

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "parametrize",
    "rnn",
    "vector_to_parameters",
]


def __getattr__(name: str) -> object:
    if name == "parametrize":  # it builds on modules, which build on this package
        return importlib.import_module(".parametrize", __name__)
    raise AttributeError(
        f"tilewright.nn.utils has no {name!r}: it is not a name of PyTorch's, or not implemented "
        "yet"
    )
