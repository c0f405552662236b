"""vmap: a function of one example, called once on a batch of them.

The function is recorded on tensors of a single example. Then `ir/passes/batching.py` makes the
graph of all examples from it. While it is recorded no value is computed that depends on an
example.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import indent
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, beneath, reachable
from tilewright.ir.ops.marker import LEAK
from tilewright.ir.passes.batching import Batching
from tilewright.runtime import debug

from .. import recording
from ..autograd.function import VmapInfo, mapping
from ..exchange import printing
from ..functions.joining import cat
from ..recording import Handle, epoch, flushing
from ..recording.states import Failed
from ..utils._pytree import tree_flatten, tree_unflatten

_RANDOMNESS = ("error", "different", "same")
_level = 0
_draws: list[int | None] = []
"""For each vmap under way: the first random number that differs between its examples."""


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """A function that calls `func` for each example of a batch, and stacks the results.

    in_dims: the dimension of the examples in each tensor of the arguments: an int, None for
        arguments that all examples share, or a nest of both in the form of the arguments.
    out_dims: where the dimension of the examples goes in the results, in their form; None for a
        result that doesn't depend on the example.
    randomness: whether random numbers are an "error", "different" for each example, or the "same".
    chunk_size: how many examples are computed at once; all of them by default.

    Raises RuntimeError where `func` reads a value that depends on the example, as `.item()` and
    `if` do, or returns something else than tensors. Raises ValueError for dimensions that don't fit
    the arguments.
    """
    if randomness not in _RANDOMNESS:
        raise RuntimeError(
            "Only allowed values for randomness are 'error', 'different', or 'same'. Got "
            f"{randomness}{at_user_line()}"
        )
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def mapped(*args: Any, **options: Any) -> Any:
        leaves, form = tree_flatten((args, options), holds_tensors)
        dims = _in_dims(func, in_dims, args, leaves)
        size = _batch_size(leaves, dims)
        step = size if chunk_size is None else chunk_size
        if step >= size:
            return _call(func, leaves, form, dims, size, out_dims, randomness)
        chunks = []
        for start in range(0, size, step):
            count = min(step, size - start)
            part = [
                x if d is None else x.narrow(d, start, count)
                for x, d in zip(leaves, dims, strict=True)
            ]
            chunks.append(_call(func, part, form, dims, count, out_dims, randomness))
        return _joined(chunks, out_dims)

    return mapped


# ---- dimensions --------------------------------------------------------------------------------


def holds_tensors(x: Any) -> bool:
    """Whether an object holds tensors and takes the dimension of the examples off by itself:
    `_add_batch_dim` and `_maybe_remove_batch_dim` of tensordict."""
    return hasattr(type(x), "_add_batch_dim") and not isinstance(x, Handle)


def name_of(func: Any) -> str:
    return getattr(func, "__name__", repr(func))


def spread(dims: Any, tree: Any) -> list[Any] | None:
    """One entry of `dims` for each leaf of `tree`; None if `dims` isn't a prefix of it."""
    if dims is None or isinstance(dims, int):
        return [dims] * len(tree_flatten(tree, holds_tensors)[0])
    if type(dims) is not type(tree) and not (
        isinstance(dims, (tuple, list)) and isinstance(tree, (tuple, list))
    ):
        return None
    if isinstance(dims, dict):
        if dims.keys() != tree.keys():
            return None
        pairs = [(dims[key], tree[key]) for key in tree]
    elif isinstance(dims, (tuple, list)):
        if len(dims) != len(tree):
            return None
        pairs = list(zip(dims, tree, strict=True))
    else:
        return None
    found: list[Any] = []
    for d, part in pairs:
        inner = spread(d, part)
        if inner is None:
            return None
        found += inner
    return found


def _in_dims(func: Any, in_dims: Any, args: tuple[Any, ...], leaves: list[Any]) -> list[int | None]:
    """The dimension of the examples in each leaf of the arguments. All examples share the keyword
    arguments."""
    called = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple, list)):
        raise ValueError(
            f"{called}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
            f"structure of inputs, got: {type(in_dims)}.{at_user_line()}"
        )
    if not leaves:
        raise ValueError(
            f"{called}: got no inputs. Maybe you forgot to add inputs, or you are trying to vmap "
            f"over a function with no inputs. The latter is unsupported.{at_user_line()}"
        )
    dims = spread(in_dims, args)
    if dims is None:
        raise ValueError(
            f"{called}: in_dims is not compatible with the structure of `inputs`: it should have "
            f"one entry for each of the {len(args)} inputs, in their form.{at_user_line()}"
        )
    dims += [None] * (len(leaves) - len(dims))
    made: list[int | None] = []
    for x, d in zip(leaves, dims, strict=True):
        if d is None:
            made.append(None)
            continue
        if not isinstance(x, Handle) and not holds_tensors(x):
            raise ValueError(
                f"{called}: Got in_dim={d} for an input but the input is of type {type(x)}. We "
                "cannot vmap over non-Tensor arguments, please use None as the respective "
                f"in_dim{at_user_line()}"
            )
        if not -x.dim() <= d < x.dim():
            raise ValueError(
                f"{called}: Got in_dim={d} for some input, but that input is a Tensor of "
                f"dimensionality {x.dim()} so expected in_dim to satisfy "
                f"-{x.dim()} <= in_dim < {x.dim()}.{at_user_line()}"
            )
        made.append(d % x.dim())
    return made


def _batch_size(leaves: list[Any], dims: list[Any]) -> int:
    sizes = [x.shape[d] for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError(
            "vmap: at least one input must have a dimension of examples: all in_dims are None"
            + at_user_line()
        )
    if any(size != sizes[0] for size in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension{at_user_line()}"
        )
    return int(sizes[0])


def _out_dims(func: Any, out_dims: Any, outputs: Any) -> list[Any]:
    dims = spread(out_dims, outputs)
    if dims is None and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1:
        dims = spread(out_dims[0], outputs)
    if dims is None:
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims})(<inputs>): out_dims is not "
            f"compatible with the structure of `outputs`{at_user_line()}"
        )
    return dims


def _joined(chunks: list[Any], out_dims: Any) -> Any:
    form = tree_flatten(chunks[0])[1]
    dims = _out_dims(None, out_dims, chunks[0])
    columns = zip(*[tree_flatten(chunk)[0] for chunk in chunks], strict=True)
    return tree_unflatten(
        [
            parts[0] if d is None else cat(list(parts), d)
            for parts, d in zip(columns, dims, strict=True)
        ],
        form,
    )


# ---- recording ---------------------------------------------------------------------------------


def _front(x: Any, dim: int) -> Node:
    node = recording.resolve(x)
    return ops.permute(node, (dim, *[i for i in range(node.rank) if i != dim]))


def _placed(node: Node, dim: int) -> Node:
    order = list(range(1, node.rank))
    order.insert(dim, 0)
    return ops.permute(node, order)


def _call(
    func: Callable[..., Any],
    leaves: list[Any],
    form: Any,
    dims: list[Any],
    size: int,
    out_dims: Any,
    randomness: str,
) -> Any:
    """One call of `func`, for the examples of tensors whose dimensions have been checked."""
    recording.claim()
    with recording.hold(), _inside() as level:
        first_draw = len(epoch.scalars)
        known = set(epoch.fallible)
        held = [(t, t._node) for t in epoch.handles]
        given = list(leaves)
        for i, d in enumerate(dims):
            if d is not None and holds_tensors(leaves[i]):
                given[i] = leaves[i]._add_batch_dim(in_dim=d, vmap_level=level + 1)
            elif d is not None:
                given[i] = example(leaves[i], d, level)
        begun = {
            i: recording.resolve(given[i])
            for i, d in enumerate(dims)
            if d is not None and isinstance(given[i], Handle)
        }
        args, options = tree_unflatten(given, form)
        draws = first_draw if randomness == "different" else None
        _draws[level:] = [draws]
        axes = {begun[i]: dims[i] for i in begun}
        with _functions_of_users(level, size, randomness), _printed(level, size, draws, axes):
            outputs = func(*args, **options)
        if randomness == "error" and any(place >= first_draw for place in epoch.drawn):
            raise RuntimeError(
                "vmap: called random operation while in randomness error mode. Please either use "
                "the 'same' or 'different' randomness flags on vmap or perform the randomness "
                f"operation out of vmap{at_user_line()}"
            )
        batch = Batching(level, size, draws)
        _move_checks(batch, known)
        results, outer = tree_flatten(outputs, holds_tensors)
        where = _out_dims(func, out_dims, outputs)
        made = [_result(func, batch, *each) for each in zip(results, where, strict=True)]
        written = [
            (leaves[i], dims[i], batch.whole(recording.resolve(given[i])))
            for i, node in begun.items()
            if recording.resolve(given[i]) is not node
        ]
        _check_others(level, held)
    for x, d, node in written:
        x.copy_(recording.wrap(_placed(node, d)))
    if batch.slow and debug.level():
        debug.say(f"vmap runs example by example: {', '.join(sorted(batch.slow))}")
    recording.settle()
    return tree_unflatten(made, outer)


@contextmanager
def _functions_of_users(level: int, size: int, randomness: str) -> Iterator[None]:
    """The block in which a torch.autograd.Function with a `vmap` of its own computes all examples
    by it."""

    def call(cls: Any, args: Sequence[Any]) -> tuple[bool, Any]:
        batch = Batching(level, size)
        nodes = [recording.resolve(a) if isinstance(a, Handle) else None for a in args]
        whole = [None if n is None else batch.of(n) for n in nodes]
        if all(w is None for w in whole):
            return False, NotImplemented
        inside = any(
            n is not None and n.requires_grad and not (w or n).requires_grad
            for n, w in zip(nodes, whole, strict=True)
        )
        given = [a if w is None else recording.wrap(w) for a, w in zip(args, whole, strict=True)]
        dims = tuple(None if w is None else 0 for w in whole)
        with recording.grad_mode(recording.is_grad_enabled() and not inside):
            outputs, where = cls.vmap(VmapInfo(size, randomness), dims, *given)
        results, outer = tree_flatten(outputs)
        places = _out_dims(cls.vmap, where, outputs)
        return inside, tree_unflatten(
            [
                x if d is None else recording.wrap(ops.example(_front(x, d), level))
                for x, d in zip(results, places, strict=True)
            ],
            outer,
        )

    mapping.append(call)
    try:
        yield
    finally:
        mapping.pop()


@contextmanager
def _printed(level: int, size: int, draws: int | None, axes: dict[Node, int]) -> Iterator[None]:
    """The block in which a tensor of one example prints the values of all examples.

    axes: the nodes of the function's arguments -> the axis of the examples in them.
    """

    def show(t: Any) -> str | None:
        node = recording.resolve(t)
        batch = Batching(level, size, draws)
        if batch.of(node) is None:
            return None
        axis = axes.get(node, 0)
        with recording.grad_mode(False):
            whole = recording.wrap(ops.detach(_placed(batch.whole(node), axis)))
        value = indent(printing.text(whole), "    ")
        return f"BatchedTensor(lvl={level + 1}, bdim={axis}, value=\n{value}\n)"

    printing.shown_by.append(show)
    try:
        yield
    finally:
        printing.shown_by.pop()


def example(x: Any, dim: int, level: int) -> Any:
    """One example of a tensor that has them along `dim`, in the vmap of a level."""
    return recording.wrap(ops.example(_front(x, dim), level))


def whole(x: Any, dim: int, level: int, size: int) -> Any:
    """The tensor of all examples along `dim`, for that of one."""
    batch = Batching(level, size, _draws[level])
    return recording.wrap(_placed(batch.whole(recording.resolve(x)), dim))


def level_of(x: Any) -> int | None:
    """The innermost vmap under way on whose examples a tensor depends."""
    node = x._node if isinstance(x, Handle) else None
    found = [] if node is None else [n for n in range(_level) if _depends(node, n)]
    return max(found, default=None)


def _result(func: Any, batch: Batching, value: Any, dim: Any) -> Any:
    if holds_tensors(value):
        return value._maybe_remove_batch_dim(
            name_of(func), vmap_level=batch.level + 1, batch_size=batch.size, out_dim=dim
        )
    if not isinstance(value, Handle):
        raise ValueError(
            f"vmap({name_of(func)}, ...): `{name_of(func)}` must only return Tensors, got type "
            f"{type(value)}. Did you mean to set out_dims= to None for output?{at_user_line()}"
        )
    node = recording.resolve(value)
    if dim is None:
        if batch.of(node) is not None:
            raise ValueError(
                f"vmap({name_of(func)}, ...): `{name_of(func)}` can not return a BatchedTensor "
                f"when out_dim is None{at_user_line()}"
            )
        return value
    if not -node.rank - 1 <= dim <= node.rank:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-node.rank - 1}, {node.rank}], "
            f"but got {dim}){at_user_line()}"
        )
    return recording.wrap(_placed(batch.whole(node), dim % (node.rank + 1)))


def _move_checks(batch: Batching, known: set[Node]) -> None:
    """Check the values of all examples where the function's calls check those of one."""
    for node in [n for n in epoch.fallible if n not in known]:
        whole = batch.of(node)
        if whole is not None:
            count = epoch.fallible.pop(node)
            epoch.fallible[whole] = epoch.fallible.get(whole, 0) + count


def _check_others(level: int, held: list[tuple[Any, Any]]) -> None:
    """RuntimeError if the function wrote values of an example to a tensor that all share."""
    others = [(t, node) for t, node in held if t._node is not node and t._node is not None]
    read = {id(t): t for t, _, _ in epoch.leaves if t is not None and t._node is not None}
    others += [(t, None) for t in read.values()]
    found = _dependent([t._node for t, _ in others], level)
    changed = [(t, node) for t, node in others if t._node in found]
    rest = {id(t): (node, buffer) for t, node, buffer in epoch.leaves if t is not None}
    for t, node in changed:
        t._node = node
        if node is None:  # it had a value before this epoch
            t._node, t._buffer = rest[id(t)]
    if changed:
        raise RuntimeError(
            "vmap: inplace arithmetic(self, *extra_args) is not possible because there exists a "
            "Tensor `other` in extra_args that has more elements than `self`: a tensor that all "
            "examples share can't take the values of one. Use the out-of-place op instead"
            + at_user_line()
        )


@contextmanager
def _inside() -> Iterator[int]:
    """The block of a call's recording; gives its level."""
    global _level
    level = _level

    def refusal(node: Node | None) -> Exception | None:
        if node is None or not _depends(node, level):
            return None
        return RuntimeError(
            "vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over "
            "calling .item() on a Tensor, or data-dependent control flow such as `if` on one: "
            f"write it with ops such as torch.where{at_user_line()}"
        )

    _level += 1
    count, checks = len(epoch.handles), set(epoch.fallible)
    try:
        with flushing.refusing(refusal):
            yield level
    finally:
        _level = level
        _forget(level, count, checks)


def _forget(level: int, count: int, checks: set[Node]) -> None:
    """Take the tensors of single examples out of the epoch. One that somebody keeps, as a traceback
    does, raises an error when it is read."""
    made = [t for t in epoch.handles[count:] if t._node is not None]
    states = [t for t in epoch.storages if t._node is not None]
    fallible = [n for n in epoch.fallible if n not in checks]
    found = _dependent([*(t._node for t in (*made, *states)), *fallible], level)
    for state in (*made, *states):
        node = state._node
        if node in found:
            state._node = None
            if state._buffer is None:
                state._aval = node.shape, node.dtype, node.device or "cpu"
                state._buffer = Failed(RuntimeError(LEAK))
    epoch.handles[count:] = [t for t in epoch.handles[count:] if t._node is not None]
    epoch.storages[:] = [s for s in epoch.storages if s._node is not None]
    for node in fallible:
        if node in found:
            del epoch.fallible[node]


def _dependent(nodes: list[Any], level: int) -> set[Node]:
    """The nodes below `nodes`, themselves included, that depend on an example of `level`."""
    found: set[Node] = set()
    for node in reachable(nodes):
        is_example = node.op is ops.example and node.attrs[0] == level
        if is_example or any(o in found for o in node.operands):
            found.add(node)
    return found


def _depends(node: Node, level: int) -> bool:
    return any(n.op is ops.example and n.attrs[0] == level for n in beneath((node,)))


def is_batchedtensor(tensor: Any) -> bool:
    """Whether a tensor depends on an example of a `vmap` that is under way."""
    return level_of(tensor) is not None
