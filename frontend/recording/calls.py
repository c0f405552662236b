"""Recording: calls on tensors become nodes.

An *epoch* is the time between two flushes. Within it tensors that hold values are numbered as
leaves in the order of their first use. So a repeated step meets the same nodes again: an op call is
one dictionary lookup, and the tuple of live nodes identifies the plan.

    record()  -> a tensor for an op call        leaf(), resolve() -> a node for a tensor
    assign()  -> an in-place write              flush()           -> values for all live tensors

Three rules keep this correct. Each combination of grad mode and casts has its own table. Keys
compare interned nodes. Everything that changes from step to step (buffers, learning rates, random
offsets) is a leaf.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, bool_, float32, float64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import OPAQUE, Instruction, Node
from tilewright.ir.numeric.special import cast as cast_number
from tilewright.ir.ops.composite import widen

from . import compounds, epoch, families, inference, resolving, threads, volatile
from .aliases import another
from .builders import facts, is_blind, name_of, refuses_bools
from .building import built
from .compounds import COMPOUND
from .direct import beside, of_all, of_one, of_two
from .epoch import clock, given, handles, mutated
from .numbers import default_dtype, key_of, number, scalar_dtype, varies
from .resolving import resolve
from .states import Handle
from .wrapping import check_bytes, overfull, wrap, wrap_all
from .writes import assign

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number

tensor_of_array: Any = None  # `torch.tensor`, set by _tensor.py
_new = object.__new__
_append = handles.append


def _first_use(t: Any) -> Node:
    """The node of a tensor that has none yet in this epoch."""
    threads.claim()
    node = resolve(t)
    if clock.leaf_bytes > clock.checked_bytes:
        check_bytes()
    return node


def record(build: Callable[..., Any], *args: Any) -> Any:
    """Call `build` on the nodes of `args` and return its result as a tensor or a tuple of tensors.

    build: a pure function of nodes (for the tensors in `args`) and hashable attrs (for the rest).
        It must be the same object in every call, as it is part of the table's key.
    """
    if clock.volatile:
        made = of_one(build, args[0]) if len(args) == 1 else of_all(build, args)
        if made is not None:
            return made
    result = node_of(build, *args)
    if type(result) is not Node:  # several nodes, or the result for a compound
        return tuple(wrap_all(result)) if type(result) is tuple else result
    if result.requires_grad:
        if result in given:
            result = another(result)
        else:
            given[result] = 0
    t = _new(epoch.tensor_type)
    t._node = result
    _append(t)
    if len(handles) > clock.limit:
        overfull()
    return t


def record_into(inplace: bool, build: Callable[..., Any], input: Any, *args: Any) -> Any:
    """As `record`; if `inplace`, `input` is overwritten with the result and returned.

    The result doesn't become a tensor first, since that might end the epoch between op and write.
    """
    if inplace and clock.volatile and volatile.overwritten(build, input, args):
        return input
    if inplace:
        return assign(input, node_of(build, input, *args))
    return record(build, input, *args)


def record_fallible(build: Callable[..., Any], *args: Any) -> Any:
    """As `record`, for a call that can fail on the values of its operands."""
    if clock.volatile:
        made = of_all(build, args)
        if made is not None:
            return made
    result = node_of(build, *args)
    if type(result) is tuple:
        for each in result:
            epoch.add_check(each)
        return _checked(tuple(wrap_all(result)))
    if type(result) is not Node:  # the result for a compound
        return result
    epoch.add_check(result)
    return _checked(wrap(result))


def _checked(results: Any) -> Any:
    """The results of a call that can fail. Where calls are computed at once, so is this one: what
    follows ends no epoch, and would not tell of its error. A graph that gradients flow through is
    only cut where there is an error to tell of."""
    if clock.volatile and volatile.may_compute() and not (clock.holding or clock.differentiated):
        each = results[0] if type(results) is tuple else results
        if families.has_failed() or not each.requires_grad:
            overfull()
    return results


def fallible_node_of(build: Callable[..., Any], *args: Any) -> Node:
    """As `node_of`, for a call that can fail on the values of its operands. The end of the epoch
    checks it, whether or not anything reads its result."""
    node: Node = node_of(build, *args)
    epoch.add_check(node)
    return node


def node_of(build: Callable[..., Any], *args: Any) -> Any:
    """As `record`, but return the bare node or nodes."""
    key = (build, *[(a._node or _first_use(a)) if isinstance(a, Handle) else a for a in args])
    try:
        result = clock.table.get(key)
    except TypeError:  # an unhashable argument, which is an error
        _refuse(build, args)
        raise
    return (similar(key) or _record(build, args)) if result is None else result


_PLAIN = frozenset((float32, float64))
Single = tuple[
    Instruction, int, int, tuple[Node, ...], tuple[Node, ...], tuple[Any, ...], tuple[Any, ...]
]
"""The single instruction that calls become, whatever their operands of the same types are:
(instruction, first, end, before, after, head, tail). The operands stand in a call's key from
`first` to `end`; `before` and `after` are constants around them among the instruction's operands,
`head` and `tail` what is around them among the call's arguments."""


def similar(key: tuple[Any, ...]) -> Any:
    """The node of a call that the table doesn't have, if calls like it are known to become a single
    instruction; else None."""
    table = clock.table
    known = table.get(_alike(key))
    if not known:
        return None
    instruction, first, end, before, after, head, tail = known
    operands = nodes = key[first:end]
    if end - first > 1 and len({*nodes}) < end - first:  # a builder sees that two operands are one
        return None
    if before or after:
        operands = (*before, *nodes, *after)
    node = instruction.nodes.get(operands)
    if node is None:
        node = instruction.new(operands, graph.location(2))
    if node.requires_grad and epoch.inferred:
        inference.refuse_saved(node, nodes)
    table[key] = node
    if node.requires_grad:
        node.memo.setdefault("call", (key[0], [*head, *nodes, *tail]))
    return node


def _new_call(key: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """The node of a call that the table doesn't have, or its result."""
    build = key[0]
    if clock.volatile:
        made = volatile.computed(build, args)
        # The nodes of `key` may be of an epoch that has ended meanwhile.
        return _record(build, args) if made is None else made
    if key[1] is None:  # a tensor that nothing of this epoch has read: it has no node yet
        return _record(build, args)
    return similar(key) or _record(build, args)


Site = tuple[Callable[..., Any], Node, type, bool]
"""Where a number stands: (builder, node, type of the number, whether the number comes first)."""


def similar_to_number(site: Site, value: Any) -> Node | None:
    """As `similar`, for a builder that looks at no number. All numbers beside nodes of one type
    become the same instruction."""
    known = clock.table.get(_alike_but_number(site))
    if known is None:
        return None
    instruction, dtype = known
    build, node, _, swapped = site
    before = graph.set_location(graph.location(3))
    try:
        other = number(site, value, dtype)
        found: Node = instruction.of((other, node) if swapped else (node, other))
    finally:
        graph.set_location(before)
    if found.requires_grad:
        if epoch.inferred:
            inference.refuse_saved(found, found.operands)
        found.memo.setdefault("call", (build, found.operands))
    return found


def _alike_but_number(site: Site) -> tuple[Any, ...]:
    build, node, kind, swapped = site
    return build, node.instruction.alike, kind, swapped


def _alike(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """What the keys of like calls have in common."""
    return tuple([k.instruction.alike if k.__class__ is Node else k for k in key])


def _learn(key: tuple[Any, ...], args: Sequence[Any], node: Node) -> None:
    """Let calls like that of `key` be known, if it became a single instruction on its operands in
    their order, and isn't the first of its like. args: what the builder was called with."""
    table = clock.table
    alike = _alike(key)
    if table.get(alike) is None:
        table[alike] = ()
        return
    nodes = tuple([k for k in key if k.__class__ is Node])
    count = len(nodes)
    if node.operands == nodes == key[1 : 1 + count]:  # nearly always
        first, place, start = 1, 0, 0
    else:
        first, place, start = (
            next((i for i in range(len(row)) if tuple(row[i : i + count]) == nodes), -1)
            for row in (key, args, node.operands)
        )
    before, after = node.operands[:start], node.operands[start + count :]
    if (
        min(first, place, start) >= 0
        and len({*nodes}) == count
        and OPAQUE not in alike
        and all([n.op.shows == "attrs" for n in (*before, *after)])
        and clock.casts is None
    ):
        head, tail = tuple(args[:place]), tuple(args[place + count :])
        found: Single = (node.instruction, first, first + count, before, after, head, tail)
        table[alike] = found


def _record(build: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The slow path: new calls, and calls of a thread that wasn't the owner."""
    threads.claim()
    nodes = [(a._node or resolve(a)) if isinstance(a, Handle) else a for a in args]
    key = (build, *nodes)
    result = clock.table.get(key)
    if result is None:
        if COMPOUND in nodes:
            return compounds.apply(build, args)
        if not isinstance(nodes[0], Node):
            _refuse(build, args)
        if clock.casts is not None:
            nodes = clock.casts(build, nodes)
        try:
            result = built(clock.stand_ins.get(build, build), nodes)
        except AttributeError:
            _refuse_others(build, args)
            raise
        if type(result) is tuple:
            result = tuple([_own(r, build, nodes) for r in result])
            for i, each in enumerate(result):
                each.memo["among"], each.memo["number"] = len(result), i
        else:
            result = _own(result, build, nodes)
            _learn(key, nodes, result)
        clock.table[key] = result
        if clock.watching is not None:
            clock.watching.called(result, nodes)
        if clock.saving is not None:
            result = clock.saving(result, nodes, args)
    if clock.leaf_bytes > clock.checked_bytes:
        check_bytes()
    return result


def _own(result: Node, build: Callable[..., Any], nodes: Sequence[Any]) -> Node:
    """The node of a call's result, which remembers the call."""
    for each in nodes:
        if each is result:  # a new tensor, even if nothing is computed
            result = ops.clone(result)
            break
    if result.requires_grad:
        if epoch.inferred:
            inference.refuse_saved(result, nodes)
        result.memo.setdefault("call", (build, nodes))
    return result


def _refuse(build: Callable[..., Any], args: Sequence[Any]) -> None:
    """Raise TypeError if the first argument of a call isn't a tensor."""
    if args and not isinstance(args[0], (Handle, Node)):
        raise TypeError(
            f"{_name(build)}(): argument 'input' (position 1) must be Tensor, not "
            f"{type(args[0]).__name__}{at_user_line()}"
        )


def _refuse_others(build: Callable[..., Any], args: Sequence[Any]) -> None:
    """Raise TypeError if an argument that a builder took for a node isn't a tensor."""
    for i, each in enumerate(args[1:], 2):
        if isinstance(each, (str, int, float)) or each is None:
            raise TypeError(
                f"{_name(build)}(): argument {i} must be Tensor, not {type(each).__name__}"
                f"{at_user_line()}"
            ) from None


def _name(build: Callable[..., Any]) -> str:
    return name_of(build) or "call"


def lowered(build: Callable[..., Any], *tensors: Any) -> tuple[Any, ...]:
    """`tensors` as a builder of products takes them, before numbers join them: in autocast's dtype,
    if that is on."""
    return tensors if clock.casts is None else clock.casts.lowered(build, tensors)


def resolve_all(tensors: Sequence[Any]) -> list[Node]:
    """The nodes of many tensors."""
    threads.claim()
    return resolving.resolve_all(tensors)


def lookup(key: Any) -> Any:
    """The table's entry for `key` in this mode, or None."""
    return clock.table.get(key)


def remember(key: Any, result: Any) -> Any:
    clock.table[key] = result
    return result


def _record_scalar(build: Callable[..., Any], t: Any, value: Any, swapped: bool) -> Any:
    """A binary op with a Python number. The number is a constant; if it keeps changing, it becomes
    an input of the run."""
    threads.claim()
    stays_bool = value.__class__ is bool and build in refuses_bools
    if isinstance(value, (np.generic, np.ndarray)):
        if value.ndim:
            return NotImplemented
        value = value.item()
    if not isinstance(value, (bool, int, float, complex)):
        return NotImplemented
    kind = type(value)
    if clock.volatile:
        made = volatile.computed_beside(build, t, value, swapped)
        if made is not None:
            return made
    node = resolve(t)
    if node is COMPOUND:
        return compounds.apply(build, (value, t) if swapped else (t, value))
    token = key_of(value)
    key: Any = (build, token, kind, node) if swapped else (build, node, token, kind)
    exact = token is not None
    site = build, node, kind, swapped
    found = clock.table.get(key) if exact else None
    if found is not None:
        return found
    sees_none = node.dtype in _PLAIN and clock.casts is None and is_blind(build)
    if exact and (sees_none or not varies(site, value)):
        found = similar_to_number(site, value) if sees_none else similar(key)
        if found is not None:
            if sees_none and found.operands[not swapped].op is not ops.scalar:
                clock.table[key] = found
            return found
    if clock.casts is not None:
        (node,) = clock.casts(build, [node])
    dtype = bool_ if stays_bool else scalar_dtype(node.dtype, value)
    said = facts(build)
    if not dtype.is_differentiable and said is not None and said.floats:
        dtype = default_dtype()
    wide = dtype
    if dtype in HALVES and said is not None and said.widens:
        wide = dtype if float(cast_number(value, dtype.np)) == value else float32
    other = number(site, value, wide)
    nodes = (other, node) if swapped else (node, other)
    is_input = other.op is ops.scalar
    if is_input and wide is dtype:
        of_nodes = (build, *nodes)
        found = clock.table.get(of_nodes)
        if found is not None:
            return found
    if wide is dtype:
        result = built(build, nodes)
    else:
        result = ops.cast(build(*map(widen, nodes)), dtype)
    result = _own(result, build, nodes)
    if sees_none and result.operands == nodes:
        clock.table[_alike_but_number(site)] = result.instruction, dtype
    if is_input and wide is dtype:
        clock.table[of_nodes] = result
    elif exact and not is_input:
        clock.table[key] = result
        _learn(key, nodes, result)
    if clock.watching is not None:
        clock.watching.called(result, nodes)
    if clock.saving is not None:
        result = clock.saving(result, nodes, (None, t) if swapped else (t, None))
    return result


# ---- methods ---------------------------------------------------------------------------------


def unary(build: Callable[..., Any], name: str, doc: str | None = None) -> Callable[..., Any]:
    def method(self: Tensor) -> Tensor:
        if clock.volatile and self._node is None:
            made: Any = of_one(build, self)
            if made is not None:
                return made
        key = build, self._node
        node = clock.table.get(key) or _new_call(key, (self,))
        if node.__class__ is not Node:  # the result for a compound, or one computed at once
            return node
        if node.requires_grad:
            if node in given:
                node = another(node)
            else:
                given[node] = 0
        t: Any = _new(epoch.tensor_type)
        t._node = node
        _append(t)
        if len(handles) > clock.limit:
            overfull()
        return t

    method.__name__ = name
    method.__doc__ = doc or build.__doc__
    return method


_NUMBERS = (float, int)


def _of_two(self: Tensor, other: Number | Tensor) -> Tensor: ...  # type: ignore[empty-body]


def binary(
    build: Callable[..., Any],
    name: str,
    *,
    swapped: bool = False,
    numbers: bool = True,
    doc: str | None = None,
) -> Callable[..., Any]:
    """Make a method of two operands; `swapped` for reflected operators (`2 - x`).

    numbers: whether the second operand may be a Python number.
    """

    def method(self: Tensor, other: Any = None, x2: Any = None) -> Tensor:
        if x2 is not None:  # NumPy's name of `other`. Nothing else that takes it costs so little.
            other = _only(name, other, x2)
        if isinstance(other, Handle):
            if clock.volatile and self._node is None:
                made: Any = of_two(build, self, other)
                if made is not None:
                    return made
            key = build, self._node, other._node
            node = clock.table.get(key) or _new_call(key, (self, other))
            if node.__class__ is not Node:  # the result for a compound, or one computed at once
                return node
        elif not numbers:
            raise TypeError(
                f"{name}(): argument 'other' (position 2) must be Tensor, not "
                f"{type(other).__name__}{at_user_line()}"
            )
        else:
            if clock.volatile and self._node is None and other.__class__ in _NUMBERS:
                made = beside(build, self, other, False)
                if made is not None:
                    return made
            try:
                node = clock.table.get((build, self._node, other, other.__class__))
            except TypeError:  # unhashable
                node = None
            if node is None:
                node = _record_scalar(build, self, other, False)
                if node.__class__ is not Node:
                    if node is NotImplemented:
                        return _with_array(name, method, self, other)
                    return node
        if node.requires_grad:
            if node in given:
                node = another(node)
            else:
                given[node] = 0
        t: Any = _new(epoch.tensor_type)
        t._node = node
        _append(t)
        if len(handles) > clock.limit:
            overfull()
        return t

    def reflected(self: Tensor, other: Number | Tensor) -> Tensor:
        if not isinstance(self, Handle):
            raise TypeError(f"{name}(): expected a Tensor, got {type(self).__name__}")
        if isinstance(other, Handle):
            return method(other, self)  # type: ignore[arg-type]
        if clock.volatile and self._node is None and other.__class__ in _NUMBERS:
            made: Any = beside(build, self, other, True)
            if made is not None:
                return made
        try:
            node = clock.table.get((build, other, other.__class__, self._node))
        except TypeError:  # unhashable
            node = None
        if node is None:
            node = _record_scalar(build, self, other, True)
            if node.__class__ is not Node:
                if node is NotImplemented:
                    return _with_array(name, reflected, self, other)
                return node
        if node.requires_grad:
            if node in given:
                node = another(node)
            else:
                given[node] = 0
        return wrap(node)

    method.__wrapped__ = _of_two  # type: ignore[attr-defined]  # what it shows of itself
    chosen = reflected if swapped else method
    chosen.__name__ = name
    chosen.__doc__ = doc or build.__doc__
    return chosen


def _only(name: str, other: Any, x2: Any) -> Any:
    """The operand of a method that was given as `x2`."""
    if other is not None:
        raise TypeError(f"{name}() takes one operand, got {other!r} and {x2!r}{at_user_line()}")
    return x2


def _with_array(name: str, method: Callable[..., Any], t: Any, other: Any) -> Any:
    """Call `method`, named `name`, with a NumPy array as operand. Nothing else may stand there."""
    if not isinstance(other, np.ndarray):
        if name.startswith("__"):  # Python asks the operand itself
            return NotImplemented
        raise TypeError(
            f"{name}(): argument 'other' must be Tensor or a number, not {type(other).__name__}"
            f"{at_user_line()}"
        )
    return method(t, tensor_of_array(other, device=t.device))


def in_place_binary(build: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Make the in-place form of a binary method; `method` handles the general case."""

    def write(self: Tensor, other: Number | Tensor) -> Tensor:
        node = self._node
        if (
            node is not None
            and self._storage is None
            and self._shared is None
            and not node.requires_grad
            and isinstance(other, Handle)
        ):
            result = clock.table.get((build, node, other._node))
            if (
                result is not None
                and result.shape == node.shape
                and result.dtype is node.dtype
                and not result.requires_grad
            ):
                mutated.add(node)
                self._changes += 1
                self._node = result
                return self
        return method(self, other)

    return write
