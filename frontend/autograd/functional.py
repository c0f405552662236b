"""Derivatives of functions: Jacobians, Hessians and their products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ..recording import Handle

if TYPE_CHECKING:
    from .._tensor import Tensor


def _tupled(value: Any) -> tuple[tuple[Any, ...], bool]:
    return (tuple(value), True) if isinstance(value, (tuple, list)) else ((value,), False)


def _inputs(inputs: tuple[Any, ...], create_graph: bool) -> tuple[Any, ...]:
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in inputs
    )


def _call(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[tuple[Any, ...], bool]:
    outputs, several = _tupled(func(*args))
    if not all(isinstance(o, Handle) for o in outputs):
        raise TypeError(
            "the outputs of the user-provided function must be Tensors, got "
            + ", ".join(type(o).__name__ for o in outputs)
        )
    return outputs, several


def _gradients(outputs: Any, inputs: Any, seeds: Any, create_graph: bool) -> tuple[Any, ...]:
    from .api import grad

    pairs = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    if not pairs:
        return tuple(x.new_zeros(x.shape) for x in inputs)
    return grad(
        [o for o, _ in pairs],
        inputs,
        [s for _, s in pairs],
        retain_graph=True,
        create_graph=create_graph,
        materialize_grads=True,
    )


def jacobian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of each output with respect to each input: of shape output.shape +
    input.shape."""
    from ..functions.joining import stack

    args, several = _tupled(inputs)
    args = _inputs(args, create_graph)
    outputs, several_outputs = _call(func, args)
    rows = []
    for o in outputs:
        flat = o.reshape(-1)
        columns: list[list[Any]] = [[] for _ in args]
        for k in range(flat.numel()):
            found = _gradients((flat[k],), args, (flat[k].detach() * 0 + 1,), create_graph)
            for column, g in zip(columns, found, strict=True):
                column.append(g)
        rows.append(
            tuple(
                stack(c).reshape(*o.shape, *x.shape) if c else o.new_zeros(*o.shape, *x.shape)
                for c, x in zip(columns, args, strict=True)
            )
        )
    result = tuple(row if several else row[0] for row in rows)
    return result if several_outputs else result[0]


def _scalar(outputs: tuple[Any, ...], several: bool) -> Any:
    if several or outputs[0].numel() != 1:
        raise RuntimeError(
            "The output of the user-provided function should be a single Tensor of one element"
        )
    return outputs[0]


def hessian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one scalar output."""
    args, several = _tupled(inputs)

    def first(*given: Any) -> Any:
        output = _scalar(*_call(func, given))
        ones = output.detach() * 0 + 1
        found = _gradients((output,), given, (ones,), True)
        return found if several else found[0]

    return jacobian(first, inputs if several else args[0], create_graph)


def vjp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(outputs, the product of `v` with the Jacobian)."""
    args, several = _tupled(inputs)
    args = _inputs(args, create_graph)
    outputs, several_outputs = _call(func, args)
    if v is None:
        seeds: tuple[Any, ...] = (_scalar(outputs, several_outputs).detach() * 0 + 1,)
    else:
        seeds, _ = _tupled(v)
    found = _gradients(outputs, args, seeds, create_graph)
    if not create_graph:
        outputs = tuple(o.detach() for o in outputs)
    return (
        outputs if several_outputs else outputs[0],
        found if several else found[0],
    )


def jvp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(outputs, the product of the Jacobian with `v`), by two reverse passes."""
    args, _ = _tupled(inputs)
    args = _inputs(args, create_graph)
    outputs, several_outputs = _call(func, args)
    vectors = (args[0].detach() * 0 + 1,) if v is None else _tupled(v)[0]
    # The vector-Jacobian product is linear in its vector; its derivative there is the other
    # product.
    seeds = tuple((o.detach() * 0).requires_grad_() for o in outputs)
    products = _gradients(outputs, args, seeds, True)
    found = _gradients(products, seeds, vectors, create_graph)
    if not create_graph:
        outputs = tuple(o.detach() for o in outputs)
    return (
        outputs if several_outputs else outputs[0],
        found if several_outputs else found[0],
    )


def vhp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(output, the product of `v` with the Hessian of a function with one scalar output)."""
    args, several = _tupled(inputs)
    args = _inputs(args, create_graph)
    output = _scalar(*_call(func, args))
    ones = output.detach() * 0 + 1
    first = _gradients((output,), args, (ones,), True)
    vectors = (args[0].detach() * 0 + 1,) if v is None else _tupled(v)[0]
    found = _gradients(first, args, vectors, create_graph)
    return output if create_graph else output.detach(), found if several else found[0]


hvp = vhp  # Hessians are symmetric
