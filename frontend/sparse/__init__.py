"""torch.sparse: tensors of which only some elements are stored.

A sparse tensor is made of dense tensors: positions and elements (`tensors.py`). What it does in a
call of torch is told by rules, a file for each family (`recording/compounds.py` tells how a call
finds them). Rules move positions on the host and elements by recorded calls, so all of it is
differentiated and fused as any other program.
"""

from __future__ import annotations

from . import conversions, elementwise, moves, products, reductions  # noqa: F401  (their rules)
from .checking import as_sparse_gradcheck
from .creating import check_sparse_tensor_invariants
from .creating import empty as empty
from .moves import spdiags
from .products import addmm, mm, sampled_addmm
from .reductions import log_softmax, softmax, sum
from .tensors import of_rows as of_rows
from .typed import (
    BFloat16Tensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
)

__all__ = [
    "BFloat16Tensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
    "addmm",
    "as_sparse_gradcheck",
    "check_sparse_tensor_invariants",
    "log_softmax",
    "mm",
    "sampled_addmm",
    "softmax",
    "spdiags",
    "sum",
]
