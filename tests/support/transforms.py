"""One program in PyTorch and in tilewright: trees of tensors compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tilewright as tw
from tilewright.utils._pytree import tree_leaves


def same(program: Callable[..., Any], *arrays: Any, tolerance: float = 1e-5) -> None:
    """program(library, *tensors) gives the same tree of tensors in both libraries."""
    import torch
    from torch.utils import _pytree

    theirs = _pytree.tree_leaves(program(torch, *map(torch.tensor, arrays)))
    mine = tree_leaves(program(tw, *map(tw.tensor, arrays)))
    assert len(mine) == len(theirs) > 0
    for a, b in zip(mine, theirs):
        assert tuple(a.shape) == tuple(b.shape)
        assert str(a.dtype) == str(b.dtype)
        assert a.requires_grad == b.requires_grad
        np.testing.assert_allclose(
            a.detach().numpy(), b.detach().numpy(), rtol=tolerance, atol=tolerance
        )


def same_error(program: Callable[[Any], Any]) -> str:
    """program(library) raises the same class of error in both; returns the text of ours."""
    import torch

    said = []
    for library in (torch, tw):
        try:
            program(library)
        except Exception as error:
            said.append((type(error).__name__, str(error)))
        else:
            raise AssertionError(f"{library.__name__} raises no error")
    assert said[0][0] == said[1][0], said
    return said[1][1]
