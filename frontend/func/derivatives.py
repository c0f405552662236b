"""Derivatives of functions of trees of tensors, in any nesting.

All of them are reverse passes. A product of the Jacobian with a vector (`jvp`) is the derivative of
the product of a vector with the Jacobian, which is linear in that vector.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from ..autograd import api
from ..autograd.function import pushing
from ..functions import creation
from ..recording import Handle, epoch
from ..recording.histories import History
from ..utils._pytree import tree_flatten, tree_map, tree_unflatten
from .vmapping import vmap

Argnums = int | tuple[int, ...]


class _Inputs:
    """Tensors by which a function is differentiated, as it sees them.

    Those without a history become leaves. After `done` these count as constants.
    """

    def __init__(self, name: str, tree: Any):
        given, self.form = tree_flatten(tree)
        for x in given:
            if not isinstance(x, Handle):
                raise ValueError(
                    f"{name}: Expected all inputs to be Tensors, got {type(x).__name__}. Put other "
                    f"values into the arguments that aren't differentiated{at_user_line()}"
                )
            if not (x.is_floating_point() or x.is_complex()):
                raise RuntimeError(
                    f"{name}: only Tensors of floating point and complex dtype can require "
                    f"gradients, got {x.dtype}{at_user_line()}"
                )
        self.tensors = [_point(x) if x.requires_grad else _leaf(x) for x in given]
        self.tree = tree_unflatten(self.tensors, self.form)

    def done(self) -> None:
        for x in self.tensors:
            _close(x)


_points = [0, 0]  # an epoch, and how many points it has


def _point(x: Any) -> Any:
    """`x` as a function sees it that is differentiated there. Each such place has a node of its
    own, and a program that repeats meets them again."""
    node = recording.resolve(x)
    if _points[0] != epoch.clock.number:
        _points[:] = epoch.clock.number, 0
    _points[1] += 1
    return recording.wrap(ops.point(node, _points[1]))


def _leaf(x: Any) -> Any:
    return x.detach().requires_grad_()


def _close(x: Any) -> None:
    x._closed = True


@contextmanager
def complete(leaves: Sequence[Any]) -> Iterator[None]:
    """Inside the block the derivatives by `leaves` count as complete."""
    for x in leaves:
        x._closed = True
    try:
        yield
    finally:
        for x in leaves:
            x._closed = False


def _is_open(target: Any) -> bool:
    """Whether a gradient that ends at `target` (a leaf, or a history of an earlier epoch) belongs
    to a derivative that isn't complete, or to the caller."""
    if isinstance(target, History):
        return any(map(_is_open, target.leaf_tensors()))
    return not getattr(target, "_closed", False)


def outside(x: Any) -> Any:
    """`x` without the part of its history that belongs to derivatives that are complete."""
    if not isinstance(x, Handle) or not x.requires_grad:
        return x
    kept = recording.is_grad_enabled() and any(map(_is_open, _variables(recording.resolve(x))))
    return x if kept else x.detach()


def _variables(node: Node) -> Iterator[Any]:
    """The targets in which the gradients of `node` end: what is detached leads to none."""
    seen, stack = {node}, [node]
    while stack:
        each = stack.pop()
        if each.op is ops.variable:
            yield epoch.variables[each.attrs[0]]
        fresh = {n for n in each.operands if n.requires_grad} - seen
        seen |= fresh
        stack += fresh


def _released(tree: Any) -> Any:
    return tree_map(outside, tree)


def _tensors(name: str, tree: Any) -> tuple[list[Any], Any]:
    leaves, form = tree_flatten(tree)
    for x in leaves:
        if not isinstance(x, Handle):
            raise RuntimeError(
                f"{name}: Expected f to return only Tensors, got {type(x).__name__}{at_user_line()}"
            )
    return leaves, form


def _aux(name: str, outputs: Any, has_aux: bool) -> tuple[Any, Any]:
    if not has_aux:
        return outputs, None
    if not (isinstance(outputs, tuple) and len(outputs) == 2):
        raise RuntimeError(
            f"{name}: output of function f should be a tuple: (output, aux) if has_aux is True"
            + at_user_line()
        )
    return outputs


def _pull(outputs: Sequence[Any], inputs: Sequence[Any], seeds: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of `inputs`, zero where none flows, as values that can be differentiated."""
    pairs = [(o, s) for o, s in zip(outputs, seeds, strict=True) if o.requires_grad]
    if not pairs or not inputs:
        return tuple(creation.zeros_like(x.detach()) for x in inputs)
    with recording.grad_mode(True):
        return api.grad(
            [o for o, _ in pairs],
            list(inputs),
            [s for _, s in pairs],
            retain_graph=True,
            create_graph=True,
            materialize_grads=True,
        )


def _selected(name: str, args: tuple[Any, ...], argnums: Argnums) -> Any:
    """The differentiated arguments: one, or a tuple of them."""
    for i in (argnums,) if isinstance(argnums, int) else argnums:
        if not isinstance(i, int) or isinstance(i, bool):
            raise RuntimeError(f"{name}: argnum must be int or tuple of ints, got: {argnums}")
        if not -len(args) <= i < len(args):
            raise RuntimeError(
                f"{name}: Got argnum={i}, but only {len(args)} positional inputs{at_user_line()}"
            )
    return args[argnums] if isinstance(argnums, int) else tuple(args[i] for i in argnums)


def _replaced(args: tuple[Any, ...], argnums: Argnums, chosen: Any) -> list[Any]:
    made = list(args)
    if isinstance(argnums, int):
        made[argnums] = chosen
    else:
        for i, each in zip(argnums, chosen, strict=True):
            made[i] = each
    return made


def grad_and_value(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns (the gradient, the value) of `func`, whose result is one number.

    argnums: the arguments by which `func` is differentiated: trees of tensors.
    has_aux: whether `func` returns (value, aux); then so does the result: (gradient, (value, aux)).
    Raises RuntimeError if the value isn't a tensor of no dimensions.
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **options: Any) -> Any:
        with recording.grad_mode(True):
            inputs = _Inputs("grad", _selected("grad", args, argnums))
            outputs = func(*_replaced(args, argnums, inputs.tree), **options)
            value, aux = _aux("grad", outputs, has_aux)
            if not isinstance(value, Handle):
                raise RuntimeError(
                    "grad: Expected the function given to grad to return a Tensor, got "
                    f"{type(value).__name__}{at_user_line()}"
                )
            if value.dim() != 0:
                raise RuntimeError(
                    "grad: Expected the function given to grad to return a scalar tensor, got "
                    f"tensor with {value.dim()} dims. Maybe you wanted to use the vjp or jacrev "
                    f"APIs instead?{at_user_line()}"
                )
            found = _pull((value,), inputs.tensors, (creation.ones_like(value.detach()),))
        inputs.done()
        gradient = tree_unflatten([outside(g) for g in found], inputs.form)
        value = outside(value)
        return (gradient, (value, _released(aux))) if has_aux else (gradient, value)

    return wrapper


def grad(
    func: Callable[..., Any], argnums: Argnums = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """A function that returns the gradient of `func`, whose result is one number; with `has_aux`
    (gradient, aux). See `grad_and_value`."""
    both = grad_and_value(func, argnums, has_aux)

    @functools.wraps(func)
    def wrapper(*args: Any, **options: Any) -> Any:
        gradient, value = both(*args, **options)
        return (gradient, value[1]) if has_aux else gradient

    return wrapper


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> Any:
    """(outputs, a function of cotangents that returns their product with the Jacobian).

    The function takes a cotangent for each output, in their form, and returns a tuple with one
    entry for each of `primals`.
    """
    with recording.grad_mode(True):
        inputs = _Inputs("vjp", primals)
        outputs, aux = _aux("vjp", func(*inputs.tree), has_aux)
        outs, form = _tensors("vjp", outputs)
    inputs.done()

    def pull(cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None) -> Any:
        seeds, given = tree_flatten(cotangents)
        if given != form:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {given}, primal output: {form}"
                f"{at_user_line()}"
            )
        found = [outside(g) for g in _pull(outs, inputs.tensors, seeds)]
        return tree_unflatten(found, inputs.form)

    result = tree_unflatten([outside(o) for o in outs], form)
    return (result, pull, _released(aux)) if has_aux else (result, pull)


class _Pushforward:
    """The linear map of tangents of the inputs to those of the outputs, at one point."""

    def __init__(self, name: str, func: Callable[..., Any], primals: Any, has_aux: bool):
        with recording.grad_mode(True):
            self.inputs = _Inputs(name, primals)
            outputs, self.aux = _aux(name, func(*self.inputs.tree), has_aux)
            self.outs, self.form = _tensors(name, outputs)
            self.seeds = [_leaf(creation.zeros_like(o.detach())) for o in self.outs]
            with pushing():
                self.products = _pull(self.outs, self.inputs.tensors, self.seeds)

    def done(self) -> None:
        self.inputs.done()
        for seed in self.seeds:
            _close(seed)

    def push(self, tangents: Sequence[Any]) -> list[Any]:
        return [outside(t) for t in _pull(self.products, self.seeds, tangents)]


def _same_form(name: str, primals: Any, tangents: Any) -> list[Any]:
    points, form = tree_flatten(primals)
    vectors, other = tree_flatten(tangents)
    if form != other:
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure, got primals "
            f"with structure {form} and tangents with structure {other}{at_user_line()}"
        )
    for x, v in zip(points, vectors, strict=True):
        if not isinstance(v, Handle) or v.shape != x.shape:
            got = tuple(v.shape) if isinstance(v, Handle) else type(v).__name__
            raise RuntimeError(
                f"{name}: Expected each tangent to have the shape of its primal, "
                f"{tuple(x.shape)}, got {got}{at_user_line()}"
            )
    return vectors


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> Any:
    """(outputs, the product of the Jacobian at `primals` with `tangents`), by two reverse passes.

    primals, tangents: tuples of one form. With `has_aux` aux comes third.
    """
    if not isinstance(primals, tuple) or not primals:
        raise RuntimeError(
            f"jvp(f, primals, tangents): Expected primals to be a tuple of at least one argument, "
            f"got {type(primals).__name__}{at_user_line()}"
        )
    vectors = _same_form("jvp", primals, tangents)
    map_ = _Pushforward("jvp", func, primals, has_aux)
    map_.done()
    pushed = tree_unflatten(map_.push(vectors), map_.form)
    outputs = tree_unflatten([outside(o) for o in map_.outs], map_.form)
    return (outputs, pushed, _released(map_.aux)) if has_aux else (outputs, pushed)


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(outputs, a function of tangents that returns the product of the Jacobian with them). The
    function `func` runs once."""
    map_ = _Pushforward("linearize", func, primals, False)
    map_.done()

    def push(*tangents: Any) -> Any:
        return tree_unflatten(map_.push(_same_form("linearize", primals, tangents)), map_.form)

    return tree_unflatten([outside(o) for o in map_.outs], map_.form), push


def _basis(x: Any) -> Any:
    """The unit vectors of the space of `x`, one for each of its elements."""
    count = x.numel()
    return creation.eye(count, dtype=x.dtype, device=x.device).reshape(count, *x.shape)


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that returns the Jacobian of `func`, by a reverse pass for all rows at once.

    Each output becomes a tree of the form of the differentiated argument (a tuple for a tuple of
    `argnums`), of tensors of shape output.shape + input.shape. chunk_size: how many rows are
    computed at once. With `has_aux` the result is (jacobian, aux).
    """

    @functools.wraps(func)
    def wrapper(*args: Any, **options: Any) -> Any:
        with recording.grad_mode(True):
            inputs = _Inputs("jacrev", _selected("jacrev", args, argnums))
            outputs = func(*_replaced(args, argnums, inputs.tree), **options)
            outputs, aux = _aux("jacrev", outputs, has_aux)
            outs, form = _tensors("jacrev", outputs)
            rows = []
            for o in outs:

                def row(seed: Any, o: Any = o) -> tuple[Any, ...]:
                    return _pull((o,), inputs.tensors, (seed,))

                found = vmap(row, chunk_size=chunk_size)(_basis(o.detach()))
                rows.append(
                    [
                        r.reshape((*o.shape, *x.shape))
                        for r, x in zip(found, inputs.tensors, strict=True)
                    ]
                )
        inputs.done()
        made = [tree_unflatten([outside(r) for r in row], inputs.form) for row in rows]
        jacobian = tree_unflatten(made, form)
        return (jacobian, _released(aux)) if has_aux else jacobian

    return wrapper


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:
    """As `jacrev`, column by column: each is the product of the Jacobian with a unit vector."""

    @functools.wraps(func)
    def wrapper(*args: Any, **options: Any) -> Any:
        def chosen(*given: Any) -> Any:
            return func(*_replaced(args, argnums, given[0]), **options)

        map_ = _Pushforward("jacfwd", chosen, (_selected("jacfwd", args, argnums),), has_aux)
        inputs = map_.inputs.tensors
        columns = []
        for i, x in enumerate(inputs):

            def column(vector: Any, i: int = i) -> list[Any]:
                tangents = [
                    vector if k == i else creation.zeros_like(y.detach())
                    for k, y in enumerate(inputs)
                ]
                return list(_pull(map_.products, map_.seeds, tangents))

            found = vmap(column, out_dims=-1, chunk_size=chunk_size, randomness=randomness)(
                _basis(x.detach())
            )
            columns.append(
                [c.reshape((*o.shape, *x.shape)) for c, o in zip(found, map_.outs, strict=True)]
            )
        map_.done()
        form = map_.inputs.form
        made = [
            tree_unflatten([outside(column[k]) for column in columns], form)[0]
            for k in range(len(map_.outs))
        ]
        jacobian = tree_unflatten(made, map_.form)
        return (jacobian, _released(map_.aux)) if has_aux else jacobian

    return wrapper


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """A function that returns the second derivatives of `func`: the Jacobian of its Jacobian."""
    return jacfwd(jacrev(func, argnums), argnums)
