"""Derivatives of functions: Jacobians, Hessians and their products with vectors.

With `strict` a result that would be zero because something doesn't depend on an input is a
RuntimeError.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ..recording import Handle

if TYPE_CHECKING:
    from .._tensor import Tensor

_NOT_STRICT = "This is not allowed in strict mode"
_LINEAR = (
    "While computing the hessian, found that the jacobian of the user-provided function with "
    f"respect to input {{}} is independent of the input. {_NOT_STRICT}. You should ensure that "
    "your function is twice differentiable and that the jacobian depends on the inputs (this would "
    "be violated by a linear function for example)."
)
_STRATEGIES = ("forward-mode", "reverse-mode")


def _tupled(value: Any) -> tuple[tuple[Any, ...], bool]:
    return (tuple(value), True) if isinstance(value, (tuple, list)) else ((value,), False)


def _checked(value: Any, what: str, name: str) -> tuple[tuple[Any, ...], bool]:
    """`value` as a tuple of tensors, and whether it was one."""
    values, several = _tupled(value)
    for i, each in enumerate(values):
        if not isinstance(each, Handle):
            which = f"value at index {i}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the "
                f"{which} has type {type(each)}.{at_user_line()}"
            )
    return values, several


def _inputs(inputs: Any, create_graph: bool, name: str) -> tuple[tuple[Any, ...], bool]:
    given, several = _checked(inputs, "inputs", name)
    return tuple(
        x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
        for x in given
    ), several


def _call(
    func: Callable[..., Any], args: tuple[Any, ...], strict: bool, name: str
) -> tuple[tuple[Any, ...], bool]:
    outputs, several = _checked(func(*args), "outputs of the user-provided function", name)
    for i, o in enumerate(outputs):
        if strict and not o.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs "
                "must be computed in a differentiable manner from the input when running in strict "
                f"mode.{at_user_line()}"
            )
    return outputs, several


def _scalar(outputs: tuple[Any, ...], several: bool, name: str) -> Any:
    if several:
        raise RuntimeError(
            f"The function given to {name} should return a single Tensor{at_user_line()}"
        )
    if outputs[0].numel() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {name} should contain a single element"
            f"{at_user_line()}"
        )
    return outputs[0]


def _vector(v: Any, like: Sequence[Any], several: bool, whose: str) -> tuple[Any, ...]:
    """`v` as tensors in the shapes of `like`; ones if there is none and one number is enough."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {whose} a single Tensor with a single element."
                f"{at_user_line()}"
            )
        return (_ones(like[0]),)
    vectors, _ = _checked(v, "v", "the function")
    if len(vectors) != len(like):
        wrong = f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}."
        wrong = wrong if several else "The given v should contain a single Tensor."
        raise RuntimeError(wrong + at_user_line())
    for i, (each, x) in enumerate(zip(vectors, like, strict=True)):
        if each.shape != x.shape:
            entry = f"Entry {i} in v" if several else "v"
            raise RuntimeError(
                f"{entry} has invalid size: should be {x.shape} but got {each.shape}."
                f"{at_user_line()}"
            )
    return vectors


def _ones(x: Any) -> Any:
    return x.detach() * 0 + 1


def _gradients(
    outputs: Any, inputs: Any, seeds: Any, create_graph: bool, unused: str = "", constant: str = ""
) -> tuple[Any, ...]:
    """The gradients of `inputs`: zeros for one that nothing depends on.

    unused: the RuntimeError for such an input, in strict mode. constant: that for a gradient that
        itself can't be differentiated. `{}` stands for the number of the input in both.
    """
    from .api import grad

    pairs = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    found: Sequence[Any] = [None] * len(inputs)
    if pairs:
        of, by = ([pair[i] for pair in pairs] for i in (0, 1))
        found = grad(
            of, inputs, by, retain_graph=True, create_graph=create_graph, allow_unused=True
        )
    for j, g in enumerate(found):
        refusal = unused if g is None else constant if not g.requires_grad else ""
        if refusal:
            raise RuntimeError(refusal.format(j) + at_user_line())
    return tuple(
        x.new_zeros(x.shape) if g is None else g for g, x in zip(found, inputs, strict=True)
    )


def _independent(strict: bool, what: str) -> str:
    return f"{what} is independent of input {{}}. {_NOT_STRICT}." if strict else ""


def _constant(strict: bool, create_graph: bool, what: str) -> str:
    if not (strict and create_graph):
        return ""
    return (
        f"The {what} of the user-provided function is independent of input {{}}. {_NOT_STRICT} "
        "when create_graph=True."
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

    if strategy not in _STRATEGIES:
        raise AssertionError(
            'Expected strategy to be either "forward-mode" or "reverse-mode". Hint: If your '
            'function has more outputs than inputs, "forward-mode" tends to be more performant. '
            'Otherwise, prefer to use "reverse-mode".'
        )
    if strict and strategy == "forward-mode":
        raise RuntimeError(
            'torch.autograd.functional.jacobian: `strict=True` and `strategy="forward-mode"` are '
            "not supported together (yet). Please either set `strict=False` or "
            f'`strategy="reverse-mode"`.{at_user_line()}'
        )
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not "
            "supported together. Please either set `strict=False` or `vectorize=False`."
            f"{at_user_line()}"
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only "
            f"implemented for `vectorize=True`.{at_user_line()}"
        )
    args, several = _inputs(inputs, create_graph, "jacobian")
    outputs, several_outputs = _call(func, args, strict, "jacobian")
    constant = _constant(strict, create_graph, "jacobian")
    rows = []
    for i, o in enumerate(outputs):
        unused = _independent(strict, f"Output {i} of the user-provided function")
        flat = o.reshape(-1)
        columns: list[list[Any]] = [[] for _ in args]
        for k in range(flat.numel()):
            seed = (_ones(flat[k]),)
            found = _gradients((flat[k],), args, seed, create_graph, unused, constant)
            for column, g in zip(columns, found, strict=True):
                column.append(g)
        rows.append(
            tuple(
                stack(c).reshape((*o.shape, *x.shape)) if c else o.new_zeros((*o.shape, *x.shape))
                for c, x in zip(columns, args, strict=True)
            )
        )
    result = tuple(row if several else row[0] for row in rows)
    return result if several_outputs else result[0]


def hessian(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function with one scalar output."""
    if outer_jacobian_strategy not in _STRATEGIES:
        raise AssertionError('Expected strategy to be either "forward-mode" or "reverse-mode".')
    args, several = _checked(inputs, "inputs", "hessian")
    linear = _LINEAR if strict else ""

    def first(*given: Any) -> Any:
        output = _scalar(*_call(func, given, strict, "hessian"), "hessian")
        found = _gradients((output,), given, (_ones(output),), True, linear, linear)
        return found if several else found[0]

    whole = args if several else args[0]
    return jacobian(first, whole, create_graph, strict, vectorize, outer_jacobian_strategy)


def vjp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(outputs, the product of `v` with the Jacobian)."""
    args, several = _inputs(inputs, create_graph, "vjp")
    outputs, several_outputs = _call(func, args, strict, "vjp")
    seeds = _vector(v, outputs, several_outputs, "the user-provided function returns")
    unused = _independent(strict, "The output of the user-provided function")
    constant = _constant(strict, create_graph, "jacobian")
    found = _gradients(outputs, args, seeds, create_graph, unused, constant)
    if not create_graph:
        outputs = tuple(o.detach() for o in outputs)
    return (
        outputs if several_outputs else outputs[0],
        found if several else found[0],
    )


_GIVEN = "the input to the user-provided function is"


def jvp(
    func: Callable[..., Any],
    inputs: Tensor | tuple[Tensor, ...],
    v: Tensor | tuple[Tensor, ...] | None = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """(outputs, the product of the Jacobian with `v`), by two reverse passes."""
    args, several = _inputs(inputs, create_graph, "jvp")
    vectors = _vector(v, args, several, _GIVEN)
    outputs, several_outputs = _call(func, args, strict, "jvp")
    # The vector-Jacobian product is linear in its vector; its derivative there is the other
    # product.
    seeds = tuple((o.detach() * 0).requires_grad_() for o in outputs)
    unused = _independent(strict, "The output of the user-provided function")
    constant = _constant(strict, create_graph, "jacobian")
    products = _gradients(outputs, args, seeds, True, unused)
    found = _gradients(products, seeds, vectors, create_graph, "", constant)
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
    args, several = _inputs(inputs, create_graph, "vhp")
    vectors = _vector(v, args, several, _GIVEN)
    output = _scalar(*_call(func, args, strict, "vhp"), "vhp")
    unused = _independent(strict, "The output of the user-provided function")
    linear = _LINEAR if strict else ""
    first = _gradients((output,), args, (_ones(output),), True, unused, linear)
    unused = _independent(strict, "The hessian of the user-provided function")
    constant = _constant(strict, create_graph, "hessian")
    found = _gradients(first, args, vectors, create_graph, unused, constant)
    return output if create_graph else output.detach(), found if several else found[0]


hvp = vhp  # Hessians are symmetric
