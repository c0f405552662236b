"""A module's call as a graph that is generic in the sizes that may differ."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tilewright.ir.location import at_user_line

from .. import recording
from ..fx.concrete import Watcher, fresh, prune
from ..fx.experimental.symbolic_shapes import (
    ConstraintViolationError,
    GuardOnDataDependentSymNode,
)
from ..fx.graph import Graph
from ..fx.node import Node
from ..fx.numbers import traced
from ..inspection.dynamic import axes, by_argument, pairs
from ..inspection.tracing import named_arguments, own_buffers, resized
from ..jit.tracing import skeleton
from ..nn import Module
from ..onnx.align import Varying
from ..onnx.sizes import probes
from ..recording import Handle
from ..utils._pytree import TreeSpec, tree_flatten, tree_flatten_with_path, tree_unflatten
from .aligning import GraphsDiffer, Place, align
from .calls import Call, watched_calls
from .dynamic_shapes import UNBOUNDED, Dim, DimHint, ShapesCollection, _Hint

Axis = tuple[int, int | None]
"""(number of the input, axis); no axis for a number."""

_LARGEST = 1 << 22  # elements of an example input at the end of a range


@dataclass
class Symbol:
    """A size that may differ, and where the inputs have it."""

    name: str
    size: int
    min: int
    max: int
    places: list[tuple[Axis, Dim | None]] = field(default_factory=list)
    hint: _Hint | None = None

    def within(self, size: int) -> int:
        return max(self.min, min(self.max, size))


class Example:
    """A module with the arguments of one call.

    leaves: tensors and numbers of the arguments, in order; names: of each in the graph. spec: the
    containers around them. kept: the paths of modules inside whose calls are noted.
    """

    def __init__(
        self,
        module: Module,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        kept: Collection[str] = (),
    ):
        self.module, self.args, self.kwargs = module, tuple(args), dict(kwargs)
        self.kept = kept
        list(named_arguments(module, self.args, self.kwargs))  # an error if they don't fit
        bound = inspect.signature(module.forward).bind(*self.args, **self.kwargs)
        self.arguments = list(bound.arguments.items())
        paths, self.spec = tree_flatten_with_path((self.args, self.kwargs))
        self.leaves = [leaf for _, leaf in paths]
        self.names = [self._name(path) for path, _ in paths]
        self.positional = self._positional()

    def _positional(self) -> list[str]:
        parameters = list(inspect.signature(self.module.forward).parameters.values())
        names: list[str] = []
        for i in range(len(self.args)):
            at = parameters[min(i, len(parameters) - 1)]
            if at.kind is inspect.Parameter.VAR_POSITIONAL:
                names.append(f"{at.name}_{i - parameters.index(at)}")
            else:
                names.append(at.name)
        return names

    def _name(self, path: Any) -> str:
        side, first, *rest = path
        if side.idx == 0:
            name = self._positional()[first.idx]
        else:
            name = str(first.key)
        for key in rest:
            name += f"_{getattr(key, 'idx', getattr(key, 'key', getattr(key, 'name', '')))}"
        return name

    # ---- symbols -----------------------------------------------------------------------------

    def symbols(self, shapes: Any) -> list[Symbol]:
        """The sizes that may differ, from `dynamic_shapes` in any of its forms."""
        if isinstance(shapes, ShapesCollection):
            shapes = shapes.dynamic_shapes(self.module, self.args, self.kwargs)
        if shapes is None:
            return []
        arguments = self.arguments
        shapes = by_argument(shapes, [name for name, _ in arguments])
        numbers = {id(leaf): i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Handle)}
        order = iter(range(len(self.leaves)))
        found: dict[str, Symbol] = {}
        for name, value in arguments:
            for leaf, shape in pairs(value, shapes.get(name), name):
                number = next(order, 0)
                number = numbers.get(id(leaf), number)
                for axis, dim, size in _axes(leaf, shape, name):
                    self._add(found, (number, axis), dim, size)
        return list(found.values())

    def _add(self, found: dict[str, Symbol], place: Axis, dim: Any, size: int) -> None:
        if isinstance(dim, int) and not isinstance(dim, bool):
            if dim != size:
                raise ConstraintViolationError(
                    f"Static shape constraint of {dim} does not match input size of {size}, for "
                    f"{self.names[place[0]]}.size()[{place[1]}]"
                )
            return
        if isinstance(dim, str):
            dim = Dim(dim)
        if isinstance(dim, DimHint):
            if dim.type is not _Hint.STATIC:
                name = f"s{len(found)}"
                low, high = dim.min or 0, UNBOUNDED if dim.max is None else dim.max
                found[name] = Symbol(name, size, low, high, [(place, None)], dim.type)
            return
        if not isinstance(dim, Dim):
            raise ValueError(f"dynamic_shapes: expected Dim, Dim.AUTO, an int or None, got {dim!r}")
        root = dim.root
        try:
            value = dim.back(size)
        except ValueError as error:
            raise ConstraintViolationError(
                f"Constraints violated: {self.names[place[0]]}.size()[{place[1]}] is {size}: "
                f"{error}"
            ) from None
        symbol = found.setdefault(root.__name__, Symbol(root.__name__, value, root.min, root.max))
        if symbol.size != value:
            raise ConstraintViolationError(
                f"Constraints violated ({root.__name__})! It is {symbol.size} for one input, and "
                f"{value} for {self.names[place[0]]}.size()[{place[1]}]"
            )
        if not root.min <= value <= root.max:
            raise ConstraintViolationError(
                f"Constraints violated ({root.__name__})! The example has {value}, which isn't in "
                f"[{root.min}, {root.max}]"
            )
        symbol.places.append((place, dim))

    # ---- recording ---------------------------------------------------------------------------

    def record(self, sizes: Mapping[Axis, int]) -> Recorded:
        """The graph of the call with inputs of other sizes."""
        leaves = []
        for i, leaf in enumerate(self.leaves):
            if isinstance(leaf, Handle):
                changed = {(n, a): s for (n, a), s in sizes.items() if n == i and a is not None}
                new = resized(leaf, i, changed) if _differs(leaf, changed) else leaf  # type: ignore[arg-type]
                leaves.append(fresh(new).requires_grad_(leaf.requires_grad))
            else:
                leaves.append(sizes.get((i, None), leaf))
        with own_buffers(self.module):
            root = skeleton(self.module)
            watch = Watcher(root, True, GuardOnDataDependentSymNode, self.module)
            inputs: list[Node] = []
            for i, leaf in enumerate(leaves):
                node = watch.graph.placeholder(self.names[i])
                inputs.append(node)
                if isinstance(leaf, Handle):
                    watch.note_input(node, leaf)
                elif (i, None) in sizes:
                    node.meta["value"] = leaf
                    leaves[i] = traced(watch, leaf, partial(_itself, node))
            args, kwargs = tree_unflatten(leaves, self.spec)
            with watched_calls(watch, self.module, self.kept) as calls:
                result = watch.run(self.module, args, kwargs)
            flat, spec = tree_flatten(result)
            with recording.grad_mode(True):
                watch.graph.output(tuple(watch.create_arg(each) for each in flat))
        prune(watch.graph)
        return Recorded(watch.graph, spec, inputs, root, calls.found)


def _itself(node: Node) -> Node:
    return node


@dataclass
class Recorded:
    graph: Graph
    out_spec: TreeSpec
    inputs: list[Node]
    root: Module
    calls: Mapping[str, Call]


def _differs(leaf: Any, sizes: Mapping[Any, int]) -> bool:
    return any(leaf.shape[axis] != size for (_, axis), size in sizes.items())


def _axes(leaf: Any, shape: Any, name: str) -> Iterator[tuple[int | None, Any, int]]:
    """(axis, entry, size) of a leaf's entry in dynamic_shapes."""
    if shape is None:
        return
    if not isinstance(leaf, Handle):
        if isinstance(leaf, int) and not isinstance(leaf, bool):
            yield None, shape, leaf
        return
    for axis, dim in axes(leaf, shape, name):
        yield axis, dim, leaf.shape[axis]


def generic(example: Example, symbols: list[Symbol]) -> tuple[Recorded, list[Symbol]]:
    """The graph for all sizes, and the symbols that are left: hints may turn out static."""
    if not symbols:
        found = example.record({})
        align([found.graph], {})
        return found, []
    optional = [s for s in symbols if s.hint is _Hint.AUTO]
    try:
        return _at_sizes(example, symbols), symbols
    except (GraphsDiffer, ConstraintViolationError) as error:
        if not optional:
            raise _violated(symbols, error) from error
    groups = _grouped(symbols)
    if len(groups) < len(symbols):
        try:
            return _at_sizes(example, groups), groups
        except (GraphsDiffer, ConstraintViolationError):
            pass
    fixed = [s for s in symbols if s.hint is not _Hint.AUTO]
    kept = list(fixed)
    for symbol in optional:
        try:
            _at_sizes(example, [*kept, symbol])
        except (GraphsDiffer, ConstraintViolationError):
            continue
        kept.append(symbol)
    try:
        found = _at_sizes(example, kept) if kept else generic(example, [])[0]
    except (GraphsDiffer, ConstraintViolationError) as error:
        raise _violated(fixed, error) from error
    return found, kept


def _grouped(symbols: list[Symbol]) -> list[Symbol]:
    """Hints of the same size as one symbol."""
    found: dict[Any, Symbol] = {}
    for s in symbols:
        key = s.name if s.hint is None else (s.size, s.min, s.max)
        if key in found:
            found[key].places.extend(s.places)
        else:
            found[key] = Symbol(s.name, s.size, s.min, s.max, list(s.places), s.hint)
    return list(found.values())


def _violated(symbols: list[Symbol], error: Exception) -> ConstraintViolationError:
    names = ", ".join(s.name for s in symbols)
    return ConstraintViolationError(
        f"Constraints violated ({names})! The program isn't the same for all sizes: {error}. Give "
        "the size that its course depends on as a static one, or a range within which it is the "
        f"same{at_user_line()}"
    )


def _at_sizes(example: Example, symbols: list[Symbol]) -> Recorded:
    """The graph for all sizes of the symbols, from records at several."""
    error: Exception | None = None
    sizes = {s.name: s.size for s in symbols}
    by_name = {s.name: s for s in symbols}
    for plan in probes(sizes):
        chosen = [{n: by_name[n].within(v) for n, v in each.items()} for each in plan]
        chosen = _unique([*chosen, *_ends(example, symbols)])
        try:
            records = [example.record(_places(symbols, each)) for each in chosen]
            columns = {
                Varying(each[s.name] for each in chosen): s
                for s in symbols
                if len({each[s.name] for each in chosen}) > 1
            }
            known: dict[Varying, Place] = {}
            for s in columns.values():
                for (number, axis), dim in s.places:
                    values = [
                        each[s.name] if dim is None else dim.of(each[s.name]) for each in chosen
                    ]
                    known.setdefault(Varying(values), Place(records[0].inputs[number], axis))
            align([r.graph for r in records], known)
        except GuardOnDataDependentSymNode:
            raise
        except GraphsDiffer as e:
            error = error or e
            continue
        except Exception as e:
            error = error or ConstraintViolationError(
                f"at other sizes it fails: {type(e).__name__}: {e}"
            )
            continue
        return records[0]
    assert error is not None
    raise error


def _unique(chosen: list[dict[str, int]]) -> list[dict[str, int]]:
    return [each for i, each in enumerate(chosen) if each not in chosen[:i]]


def _places(symbols: list[Symbol], sizes: Mapping[str, int]) -> dict[Axis, int]:
    return {
        place: sizes[s.name] if dim is None else dim.of(sizes[s.name])
        for s in symbols
        for place, dim in s.places
    }


def _ends(example: Example, symbols: list[Symbol]) -> list[dict[str, int]]:
    """The ends of the ranges, if they were given and aren't too large to try."""
    found = []
    for end in ("min", "max"):
        sizes = {}
        for s in symbols:
            value = getattr(s, end)
            given = value < UNBOUNDED if end == "max" else value > 2
            sizes[s.name] = value if given else s.size
        if sizes != {s.name: s.size for s in symbols} and _small(example, symbols, sizes):
            found.append(sizes)
    return found


def _small(example: Example, symbols: list[Symbol], sizes: Mapping[str, int]) -> bool:
    places = _places(symbols, sizes)
    for i, leaf in enumerate(example.leaves):
        if isinstance(leaf, Handle):
            count = 1
            for axis, size in enumerate(leaf.shape):
                count *= places.get((i, axis), size)
            if count > max(_LARGEST, leaf.numel()):
                return False
    return True
