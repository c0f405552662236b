"""Derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..recording import Handle

if TYPE_CHECKING:
    from .._tensor import Tensor


class GradcheckError(RuntimeError):
    """A derivative differs from its finite difference."""


def _outputs(result: Any) -> list[Any]:
    outs = result if isinstance(result, (tuple, list)) else (result,)
    return [o for o in outs if isinstance(o, Handle) and o.requires_grad]


def _numerical(
    func: Callable[..., Any], inputs: Sequence[Any], which: int, out: int, eps: float
) -> np.ndarray:
    from ..functions.creation import tensor

    arrays = [i.detach().numpy().copy() if isinstance(i, Handle) else i for i in inputs]

    def run() -> np.ndarray:
        args = [
            tensor(a, dtype=i.dtype).requires_grad_(i.requires_grad) if isinstance(i, Handle) else i
            for a, i in zip(arrays, inputs, strict=True)
        ]
        return (
            np.asarray(_outputs(func(*args))[out].detach().numpy(), dtype=np.float64)
            .reshape(-1)
            .copy()
        )

    target = arrays[which]
    columns = []
    flat = target.reshape(-1)
    for k in range(flat.size):
        before = flat[k]
        flat[k] = before + eps
        high = run()
        flat[k] = before - eps
        low = run()
        flat[k] = before
        columns.append((high - low) / (2 * eps))
    return np.stack(columns) if columns else np.zeros((0, run().size))


def gradcheck(
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
) -> bool:
    """Whether the derivatives of `func` at `inputs` (float64) agree with central differences.

    |analytical - numerical| <= atol + rtol * |numerical| for every element of every Jacobian.
    """
    from .api import grad

    args = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    for out_index, out in enumerate(_outputs(func(*args))):
        wanted = [i for i, a in enumerate(args) if isinstance(a, Handle) and a.requires_grad]
        analytical = _jacobians(func, args, wanted, out_index, out.numel(), grad)
        for i, found in zip(wanted, analytical, strict=True):
            expected = _numerical(func, args, i, out_index, eps)
            if not np.allclose(found, expected, rtol=rtol, atol=atol):
                if not raise_exception:
                    return False
                raise GradcheckError(
                    f"Jacobian mismatch for output {out_index} with respect to input {i},\n"
                    f"numerical:{expected}\nanalytical:{found}\n"
                )
    return True


def _jacobians(
    func: Any, args: Any, wanted: list[int], out: int, size: int, grad: Any
) -> list[np.ndarray]:
    from ..functions.creation import zeros_like

    columns: list[list[np.ndarray]] = [[] for _ in wanted]
    for k in range(size):
        y = _outputs(func(*args))[out]
        seed = zeros_like(y.detach())
        seed.view(-1)[k] = 1
        grads = grad(y, [args[i] for i in wanted], seed, allow_unused=True)
        for column, i, g in zip(columns, wanted, grads, strict=True):
            value = (
                np.zeros(args[i].numel())
                if g is None
                else np.asarray(g.detach().numpy(), dtype=np.float64)
            )
            column.append(value.reshape(-1).copy())
    return [
        np.stack(c, axis=1) if c else np.zeros((args[i].numel(), 0))
        for c, i in zip(columns, wanted, strict=True)
    ]


def gradgradcheck(
    func: Callable[..., Any], inputs: Tensor | Sequence[Tensor], **options: Any
) -> bool:
    """Whether the second derivatives of `func` agree with differences of the first."""
    from .api import grad

    args: list[Any] = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    wanted = [i for i, a in enumerate(args) if isinstance(a, Handle) and a.requires_grad]

    def first(*given: Any) -> Any:
        y = _outputs(func(*given))[0]
        weight = y.detach() * 0 + 0.7
        found = grad(y, [given[i] for i in wanted], weight, create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None and g.requires_grad)

    return gradcheck(first, args, **options)
