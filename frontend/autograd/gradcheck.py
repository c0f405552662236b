"""Derivatives against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import complex128, float64
from tilewright.ir.location import at_user_line, warn

from ..recording import Handle

if TYPE_CHECKING:
    from .._tensor import Tensor

_FINE = (float64, complex128)
"""The dtypes whose finite differences are accurate."""


class GradcheckError(RuntimeError):
    """A derivative differs from its finite difference."""


def _outputs(result: Any) -> list[Any]:
    outs = result if isinstance(result, (tuple, list)) else (result,)
    return [o for o in outs if isinstance(o, Handle) and o.requires_grad]


def _numerical(
    func: Callable[..., Any], inputs: Sequence[Any], which: int, out: int, eps: float
) -> np.ndarray:
    from ..functions.from_data import tensor

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
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the derivatives of `func` at `inputs` (float64) agree with central differences.

    |analytical - numerical| <= atol + rtol * |numerical| for every element of every Jacobian.
    nondet_tol: how much the gradients of two passes may differ. check_grad_dtypes: whether a
        gradient has to have the dtype of its input. check_batched_grad: whether gradients of a
        batch of cotangents have to agree with those of each.
    check_forward_ad, check_batched_forward_grad, check_backward_ad, check_undefined_grad,
    fast_mode and masked change nothing: products in forward mode are made of the backward pass, and
    each column of each Jacobian is looked at.
    """
    from ..functions.from_data import tensor
    from .api import grad

    args = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    if not any(isinstance(a, Handle) and a.requires_grad for a in args):
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them "
            f"have requires_grad=True.{at_user_line()}"
        )
    for i, each in enumerate(args):
        if isinstance(each, Handle) and each.requires_grad and each.dtype not in _FINE:
            warn(
                f"Input #{i} requires gradient and is not a double precision floating point or "
                "complex. This check will likely fail if all the inputs are not of double "
                "precision floating point or complex. "
            )
    failure = _consistency(func, args, nondet_tol, check_grad_dtypes, check_batched_grad)
    if failure is not None:
        if not raise_exception:
            return False
        raise GradcheckError(failure)
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
                    f"numerical:{tensor(expected)}\nanalytical:{tensor(found)}\n"
                )
    return True


def _consistency(
    func: Any, args: list[Any], nondet_tol: float, dtypes: bool, batched: bool
) -> str | None:
    """What is wrong with the gradients apart from their values; None if nothing is."""
    from ..functions.creation import ones_like
    from ..functions.joining import stack
    from ..functions.sampling import rand
    from .api import grad

    wanted: list[Any] = [a for a in args if isinstance(a, Handle) and a.requires_grad]
    for k in range(len(_outputs(func(*args)))):

        def pulled(seed: Any, k: int = k, **options: Any) -> list[Any]:
            y = _outputs(func(*args))[k]
            return list(grad(y, wanted, seed, allow_unused=True, **options))

        like = _outputs(func(*args))[k].detach()
        first, second = pulled(ones_like(like)), pulled(ones_like(like))
        for i, (a, g, other) in enumerate(zip(wanted, first, second, strict=True)):
            if g is None:
                continue
            if dtypes and g.dtype is not a.dtype:
                return f"Expected a gradient of dtype {a.dtype} for input {i}, but got {g.dtype}"
            if (g - other).abs().max().item() > nondet_tol if g.numel() else False:
                return (
                    "Backward is not reentrant, i.e., running backward with same input and "
                    "grad_output multiple times gives different values, although analytical "
                    f"gradient matches numerical gradient. The tolerance for nondeterminism was "
                    f"{nondet_tol}."
                )
        if batched:
            seeds = [rand(like.shape, dtype=like.dtype) for _ in range(2)]
            together = pulled(stack(seeds), is_grads_batched=True)
            for both, *each in zip(together, *map(pulled, seeds), strict=True):
                if both is None or not both.numel():
                    continue
                if (both - stack(each)).abs().max().item() > 1e-8:
                    return "gradients of a batch of cotangents differ from those of each"
    return None


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
    func: Callable[..., Any],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor] | None = None,
    *,
    gen_non_contig_grad_outputs: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    **options: Any,
) -> bool:
    """Whether the second derivatives of `func` agree with differences of the first.

    The cotangents of the results are inputs, too. So a first derivative that forgets how it depends
    on `inputs` is found even where nothing else makes it differentiable.

    grad_outputs: the cotangents; drawn at random if there are none.
    options: those of `gradcheck`.
    """
    from ..functions.sampling import randn
    from .api import grad

    args: list[Any] = list(inputs) if isinstance(inputs, (tuple, list)) else [inputs]
    wanted = [i for i, a in enumerate(args) if isinstance(a, Handle) and a.requires_grad]
    if grad_outputs is None:
        seeds: list[Any] = [
            randn(y.shape, dtype=y.dtype, device=y.device).requires_grad_()
            for y in _outputs(func(*args))
        ]
    else:
        seeds = [grad_outputs] if isinstance(grad_outputs, Handle) else list(grad_outputs)

    def first(*given: Any) -> Any:
        results = _outputs(func(*given[: len(args)]))
        at = [given[i] for i in wanted]
        found = grad(results, at, given[len(args) :], create_graph=True, allow_unused=True)
        return tuple(g for g in found if g is not None)

    return gradcheck(first, [*args, *seeds], **options)
