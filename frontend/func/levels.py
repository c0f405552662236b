"""torch._C._functorch and torch._functorch.vmap: what tensordict calls inside of `vmap`.

Levels count from 1, as PyTorch's do.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import beneath

from .. import recording
from ..utils._pytree import tree_unflatten
from . import vmapping

_get_name = vmapping.name_of


def _add_batch_dim(tensor: Any, in_dim: int, level: int) -> Any:
    """One example of a tensor that has them along `in_dim`."""
    return vmapping.example(tensor, in_dim % tensor.dim(), level - 1)


def _remove_batch_dim(tensor: Any, level: int, batch_size: int, out_dim: int) -> Any:
    """The tensor of all examples, which lie along `out_dim`, for that of one."""
    return vmapping.whole(tensor, out_dim % (tensor.dim() + 1), level - 1, batch_size)


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """The same for a result of a function of that name; itself, if `out_dim` is None."""
    if not isinstance(batched_output, recording.Handle):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(batched_output)}"
        )
    if out_dim is None:
        return batched_output
    return _remove_batch_dim(batched_output, vmap_level, batch_size, out_dim)


def get_unwrapped(tensor: Any) -> Any:
    """The tensor of all examples along its first dimension, for that of one; else itself."""
    level = vmapping.level_of(tensor)
    if level is None:
        return tensor
    examples = beneath((recording.resolve(tensor),))
    size = next(
        n.operands[0].shape[0] for n in examples if n.op is ops.example and n.attrs[0] == level
    )
    return vmapping.whole(tensor, 0, level, size)


def _broadcast_to_and_flatten(tree: Any, treespec: Any) -> list[Any] | None:
    """One entry of `tree` for each leaf of a tree of that form; None if it is no prefix of it."""
    return vmapping.spread(tree, tree_unflatten(range(treespec.num_leaves), treespec))
