"""torch.backends: switches for the precision and the choice of kernels."""

import importlib as _importlib
from typing import Any as _Any

from . import cuda as cuda
from . import cudnn as cudnn
from . import mps as mps

_LATER = frozenset(
    "cpu cusparselt kleidiai mha mkl mkldnn nnpack openmp opt_einsum quantized".split()
)


def __getattr__(name: str) -> _Any:
    if name in _LATER:
        return _importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"torch.backends has no {name!r}")
