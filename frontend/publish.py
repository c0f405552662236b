"""The names torch.x and Tensor.x: the declared ops, and the public modules.

The ops of some modules are published before their module is imported: `LATER` lists their names.
The modules declare them as any other op, and a test compares.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from ._tensor import Tensor
from .functions import (  # noqa: F401  (importing them declares their ops)
    applied,
    bins,
    calculus,
    complexes,
    composed,
    contractions,
    conversions,
    copies,
    data_sized,
    dense,
    distances,
    divisors,
    elementwise,
    gathering,
    indexing,
    joining,
    masks,
    older,
    parts,
    products,
    quantized,
    queries,
    reduction,
    scattering,
    searching,
    shapes,
    sorting,
    special,
    statistics,
)
from .functions.call import DECLARED, Declaration
from .recording import compounds


class Later(NamedTuple):
    """The names of functions and methods that a module declares."""

    functions: str
    methods: str = ""


LATER = {
    "functions.sampling": Later(
        "rand randn randint randperm rand_like randn_like randint_like bernoulli multinomial "
        "normal",
        "uniform_ normal_ random_ bernoulli_ exponential_ geometric_ cauchy_ log_normal_ bernoulli "
        "multinomial",
    ),
    "linalg.root": Later(
        "cholesky cholesky_inverse cholesky_solve inverse pinverse det logdet slogdet matrix_exp "
        "matrix_power qr svd geqrf orgqr ormqr lu lu_solve lu_unpack triangular_solve norm "
        "nuclear_norm frobenius_norm svd_lowrank pca_lowrank",
        "cholesky cholesky_inverse cholesky_solve inverse pinverse det logdet slogdet matrix_exp "
        "matrix_power qr svd geqrf orgqr ormqr lu lu_solve triangular_solve norm",
    ),
    "functions.variates": Later("poisson binomial"),
    "sparse.products": Later("smm sspaddmm", "smm sspaddmm"),
    "sparse.conversions": Later(
        "resize_as_sparse_",
        "resize_as_sparse_ to_sparse to_sparse_coo to_sparse_csr to_sparse_csc to_sparse_bsr "
        "to_sparse_bsc sparse_mask",
    ),
    "signal.root": Later(
        "bartlett_window blackman_window hamming_window hann_window kaiser_window"
    ),
    "signal.short_time": Later("stft istft", "stft istft"),
    "nn.functional": Later(
        "softmax log_softmax dropout alpha_dropout conv1d conv2d conv3d conv_transpose1d "
        "conv_transpose2d conv_transpose3d max_pool1d max_pool2d max_pool3d avg_pool1d "
        "adaptive_avg_pool1d adaptive_max_pool1d layer_norm group_norm batch_norm instance_norm "
        "rms_norm prelu celu selu threshold bilinear cosine_similarity pairwise_distance "
        "pixel_shuffle hinge_embedding_loss rrelu rrelu_ feature_alpha_dropout conv_tbc "
        "native_channel_shuffle ctc_loss max_pool1d_with_indices hardshrink",
        "softmax log_softmax prelu hardshrink",
    ),
}

# Modules of torch that a program may name. Other modules beside them are private.
MODULES = frozenset(
    "_C __config__ __future__ _custom_ops _dynamo _higher_order_ops _subclasses _tensor "
    "_tensor_str _utils accelerator amp aot autograd backends classes compiler cpu cuda "
    "distributed distributions export fft func functional futures fx hub inspection jit library "
    "linalg masked monitor mps mtia multiprocessing nested nn onnx ops optim overrides package "
    "profiler quasirandom random return_types serialization signal sparse special storage testing "
    "torch_version types utils version xpu ao".split()
)

# Functions that are methods written in the class.
_OF_METHODS = "detach detach_ fill_ zero_".split()


LATE = {name: module for module, names in LATER.items() for name in names.functions.split()}


def late(name: str, module: str) -> Declaration:
    """The declaration of an op that `module` declares."""
    importlib.import_module(f".{module}", __package__)
    return DECLARED[name]


def _late_method(name: str, module: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **options: Any) -> Any:
        own: Any = late(name, module).method
        setattr(Tensor, name, own)
        return own(self, *args, **options)

    method.__name__ = method.__qualname__ = name
    return method


def called(function: Any, name: str) -> Any:
    """A function under a name of its own, as each alias has one in PyTorch.

    The first name is given to the function itself, and every other one to a copy.
    """
    if not isinstance(function, FunctionType):
        return function
    if function not in _NAMED:
        _NAMED.add(function)
        function.__name__ = name
    if function.__name__ == name:
        return function
    own = FunctionType(
        function.__code__, function.__globals__, name, function.__defaults__, function.__closure__
    )
    functools.update_wrapper(own, function, ("__doc__", "__annotations__"))
    own.__kwdefaults__ = function.__kwdefaults__
    own.__qualname__ = name
    own.__module__ = __package__  # pickle finds it as torch.x
    COPIES[own] = function
    return own


_NAMED: set[FunctionType] = set()
COPIES: dict[FunctionType, FunctionType] = {}
"""The functions of aliases, and those that they are copies of."""


def _publish() -> dict[str, Any]:
    """Give Tensor its methods; returns the functions of torch by name."""
    functions: dict[str, Any] = {}
    for op in DECLARED.values():
        forms = (("", op.function, op.method), ("_", op.in_place_function, op.in_place))
        for name in (op.name, *op.aliases):
            for suffix, function, method in forms:
                if function is not None:
                    functions[name + suffix] = called(function, name + suffix)
                if method is not None:
                    setattr(Tensor, name + suffix, called(method, name + suffix))
        for operator, method in (op.operators or {}).items():
            setattr(Tensor, operator, method)
    setattr(Tensor, "__hash__", object.__hash__)  # noqa: B010  (`__eq__` took it away)
    for module, names in LATER.items():
        for name in names.methods.split():
            setattr(Tensor, name, _late_method(name, module))
    return functions | {name: getattr(Tensor, name) for name in _OF_METHODS}


def _sparse() -> Any:
    return importlib.import_module(".sparse", __package__)


compounds.sparse = _sparse
_functions = _publish()
globals().update(_functions)
__all__ = sorted(_functions)
