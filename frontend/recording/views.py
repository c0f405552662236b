"""Kinds of views: each one's node, its layout in memory, and writes through it."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import DType, bool_
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.ops.strided import diagonal_length, memory_slice
from tilewright.ir.shape import Size, contiguous_strides, reshape_strides, shape_of

from . import bits

Layout = tuple[tuple[int, ...], tuple[int, ...], int]
"""(shape, strides, offset), in elements."""


def span(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The number of elements of memory from the first that a view shows to the last."""
    if any(n == 0 for n in sizes):
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))


class View:
    """One kind of view. `attrs`: of the node function; `name`: for `grad_fn`.

    moves: whether it only moves elements. detaches: whether it drops the history.
    retypes: whether the view has another dtype. Its layout counts in elements of that.
    form: which of PyTorch's forms of a function it is, for `grad_fn`.
    multiple: whether one call returns several views. PyTorch refuses writes to these with
        gradients.
    """

    name: str
    form = 0
    moves = False
    multiple = False
    detaches = False
    retypes = False

    def __reduce__(self) -> str:
        return self.name.upper()

    def node(self, x: Node, *attrs: Any) -> Node:
        """The view of `x`."""
        raise NotImplementedError

    def layout(self, source: Layout, *attrs: Any) -> Layout | None:
        """The memory layout of the view; None if strides can't express it."""
        raise NotImplementedError

    def write(self, x: Node, value: Node, *attrs: Any) -> Node:
        """`x` with its view replaced by `value`."""
        raise NotImplementedError

    def put(
        self, x: Node, value: Node, inside: Node | None, *attrs: Any
    ) -> tuple[Node, Node | None]:
        """`value` moved to the places in `x` that the view shows, and a mask of these places. The
        mask is None if they are all of `x`.

        inside: such a mask of the view, or None; always None for views that don't only move
            elements. Masks let a write through a chain of views read old elements from the base
            alone, and from no view between.
        """
        value = self.write(x, value, *attrs)
        return value, None if inside is None else self.write(x, inside, *attrs)

    def number(self, *attrs: Any) -> int:
        """Which of the views of its call it is."""
        return 0

    def repeats(self, source: Layout, *attrs: Any) -> bool:
        """Whether the view may show an element twice. Writes then go by places in memory."""
        return False


class _Reshape(View):
    moves = True

    def __init__(self, name: str = "reshape"):
        self.name = name

    def node(self, x: Node, shape: tuple[int, ...]) -> Node:
        return ops.reshape(x, shape)

    def layout(self, source: Layout, shape: tuple[int, ...]) -> Layout | None:
        strides = reshape_strides(source[0], source[1], shape)
        return None if strides is None else (shape, strides, source[2])

    def write(self, x: Node, value: Node, shape: tuple[int, ...]) -> Node:
        return ops.reshape(value, x.shape)


class _Fit(_Reshape):
    """Drops dimensions of size 1, or inserts one. attrs: the new shape and the dimensions."""

    def node(self, x: Node, shape: Any, dims: Any = ()) -> Node:
        return ops.reshape(x, shape)

    def write(self, x: Node, value: Node, shape: Any, dims: Any = ()) -> Node:
        return ops.reshape(value, x.shape)


class _Squeeze(_Fit):
    def __init__(self, name: str, form: int = 0):
        super().__init__(name)
        self.form = form

    def layout(self, source: Layout, shape: Any, dims: Any = ()) -> Layout:
        return shape, tuple([s for i, s in enumerate(source[1]) if i not in dims]), source[2]


class _Unsqueeze(_Fit):
    def layout(self, source: Layout, shape: Any, dims: Any = ()) -> Layout:
        sizes, strides, offset = source
        (at,) = dims
        own = sizes[at] * strides[at] if at < len(sizes) else 1
        return shape, (*strides[:at], own, *strides[at:]), offset


class _Permute(View):
    moves = True

    def __init__(self, name: str = "permute"):
        self.name = name

    def node(self, x: Node, order: tuple[int, ...]) -> Node:
        return ops.permute(x, order)

    def layout(self, source: Layout, order: tuple[int, ...]) -> Layout:
        shape, strides, offset = source
        return tuple([shape[i] for i in order]), tuple([strides[i] for i in order]), offset

    def write(self, x: Node, value: Node, order: tuple[int, ...]) -> Node:
        inverse = [0] * len(order)
        for i, o in enumerate(order):
            inverse[o] = i
        return ops.permute(value, inverse)


class _Slice(View):
    """A slice. kept: the dimensions that remain of it, where others of size 1 are dropped.
    among: the dimension and the sizes of all slices that one call took, where it took several."""

    moves = True

    def __init__(self, name: str = "slice", multiple: bool = False):
        self.name, self.multiple = name, multiple

    def node(
        self, x: Node, starts: Any, stops: Any, steps: Any, kept: Any = None, among: Any = None
    ) -> Node:
        part = ops.slice_(x, starts, stops, steps)
        return part if kept is None else ops.reshape(part, [part.shape[i] for i in kept])

    def layout(
        self,
        source: Layout,
        starts: Any,
        stops: Any,
        steps: Any,
        kept: Any = None,
        among: Any = None,
    ) -> Layout:
        _, strides, offset = source
        axes = range(len(strides)) if kept is None else kept
        sizes = tuple([max(0, -(-(stops[i] - starts[i]) // steps[i])) for i in axes])
        offset += sum([t * a for t, a in zip(strides, starts, strict=True)])
        return sizes, tuple([strides[i] * steps[i] for i in axes]), offset

    def number(self, *attrs: Any) -> int:
        starts, stops, _, kept, among = (*attrs, None)[:5]
        if among is None:  # a row of each index
            return starts[next(i for i in range(len(starts)) if i not in kept)] if kept else 0
        axis, sizes = among
        bounds = itertools.pairwise(itertools.accumulate(sizes, initial=0))
        return list(bounds).index((starts[axis], stops[axis]))

    def write(self, x: Node, value: Node, *attrs: Any) -> Node:
        value, inside = self.put(x, value, None, *attrs)
        return value if inside is None else ops.where(inside, value, x)

    def put(
        self,
        x: Node,
        value: Node,
        inside: Node | None,
        starts: Any,
        stops: Any,
        steps: Any,
        kept: Any = None,
        among: Any = None,
    ) -> tuple[Node, Node | None]:
        if kept is not None:
            sizes = [1] * x.rank
            for axis, size in zip(kept, value.shape, strict=True):
                sizes[axis] = size
            value = ops.reshape(value, sizes)
            inside = None if inside is None else ops.reshape(inside, sizes)
        if value.shape == x.shape:
            return value, inside
        if 0 in value.shape:
            return x, None
        interior = [s - 1 for s in steps]
        high = [
            n - a - ((m - 1) * s + 1)
            for n, m, a, s in zip(x.shape, value.shape, starts, steps, strict=True)
        ]
        if inside is None:
            inside = ops.expand(ops.constant(True, bool_), value.shape)
        inside = ops.pad(inside, starts, high, interior, ops.constant(False, bool_))
        return ops.pad(value, starts, high, interior), inside


class _Expand(View):
    name = "expand"

    def node(self, x: Node, shape: tuple[int, ...]) -> Node:
        return ops.expand(x, shape)

    def layout(self, source: Layout, shape: tuple[int, ...]) -> Layout:
        sizes, strides, offset = source
        lead = len(shape) - len(sizes)
        if not sizes:
            return tuple(shape), (0,) * lead, offset
        out = [
            0 if shape[lead + i] != size else stride
            for i, (size, stride) in enumerate(zip(sizes, strides, strict=True))
        ]
        for i in reversed(range(lead)):
            out.insert(0, 0 if shape[i] != 1 else shape[i + 1] * out[0])
        return tuple(shape), tuple(out), offset

    def write(self, x: Node, value: Node, shape: tuple[int, ...]) -> Node:
        return ops.reshape(value, x.shape)  # with dimensions of size 1 in front

    def repeats(self, source: Layout, shape: tuple[int, ...]) -> bool:
        return numel(shape) != numel(source[0])


class _Windows(View):
    name = "unfold"

    def node(self, x: Node, axis: int, size: int, step: int) -> Node:
        return ops.windows(x, (axis,), (size,), (step,), (1,))

    def layout(self, source: Layout, axis: int, size: int, step: int) -> Layout:
        shape, strides, offset = list(source[0]), list(source[1]), source[2]
        shape[axis] = (shape[axis] - size) // step + 1
        strides.append(strides[axis])
        strides[axis] *= step
        return (*shape, size), tuple(strides), offset

    def repeats(self, source: Layout, axis: int, size: int, step: int) -> bool:
        return True  # or it skips elements, which a write by places keeps


class _Diagonal(View):
    name = "diagonal"

    def node(self, x: Node, offset: int, a: int, b: int) -> Node:
        return ops.diagonal(x, offset, a, b)

    def layout(self, source: Layout, offset: int, a: int, b: int) -> Layout:
        sizes, strides, start = source
        rest = [i for i in range(len(sizes)) if i not in (a, b)]
        length = diagonal_length(sizes[a], sizes[b], offset)
        if length:
            start += max(offset, 0) * strides[b] + max(-offset, 0) * strides[a]
        shape = (*(sizes[i] for i in rest), length)
        return shape, (*(strides[i] for i in rest), strides[a] + strides[b]), start

    def write(self, x: Node, value: Node, offset: int, a: int, b: int) -> Node:
        return ops.set_diagonal(x, value, offset, a, b)


class _Strided(View):
    """Any strides over contiguous memory. The offset counts from the beginning of the memory."""

    name = "as_strided"

    def node(self, x: Node, *layout: Any) -> Node:
        return ops.strided(x, *layout)

    def layout(self, source: Layout, shape: Any, strides: Any, offset: int) -> Layout | None:
        return (shape, strides, source[2] + offset) if is_contiguous(*source[:2]) else None

    def repeats(self, source: Layout, *layout: Any) -> bool:
        return True


class _Detach(View):
    detaches = True

    def __init__(self, name: str):
        self.name = name

    def node(self, x: Node) -> Node:
        return ops.detach(x) if x.requires_grad else x

    def layout(self, source: Layout) -> Layout:
        return source

    def write(self, x: Node, value: Node) -> Node:
        return ops.with_value(x, value) if x.requires_grad else value


class _Real(View):
    """The parts of complex numbers, along a new last dimension of size 2."""

    name = "view_as_real"
    retypes = True

    def node(self, x: Node) -> Node:
        return ops.view_as_real(x)

    def layout(self, source: Layout) -> Layout:
        sizes, strides, offset = source
        return (*sizes, 2), (*(2 * s for s in strides), 1), 2 * offset

    def write(self, x: Node, value: Node) -> Node:
        return ops.view_as_complex(value)


class _Complex(View):
    """The complex numbers whose parts lie along the last dimension, of size 2 and stride 1."""

    name = "view_as_complex"
    retypes = True

    def node(self, x: Node) -> Node:
        return ops.view_as_complex(x)

    def layout(self, source: Layout) -> Layout | None:
        sizes, strides, offset = source
        if sizes[-1:] != (2,) or strides[-1] != 1 or any(s % 2 for s in (*strides[:-1], offset)):
            return None
        return sizes[:-1], tuple(s // 2 for s in strides[:-1]), offset // 2

    def write(self, x: Node, value: Node) -> Node:
        return ops.view_as_real(value)


class _Bits(View):
    """The same bits as elements of another dtype. attrs: that dtype, and the old one. Of another
    size, they change the last size."""

    name = "view"
    retypes = True

    def __reduce__(self) -> str:
        return "VIEW_AS_BITS"

    def node(self, x: Node, dtype: DType, own: DType) -> Node:
        return bits.read_as(x, dtype)

    def layout(self, source: Layout, dtype: DType, own: DType) -> Layout | None:
        sizes, strides, offset = source
        new, old = dtype.itemsize, own.itemsize
        if new == old:
            return source
        if strides[-1:] != (1,) or any(s * old % new for s in (sizes[-1], offset, *strides[:-1])):
            return None
        strides = (*(s * old // new for s in strides[:-1]), 1)
        return (*sizes[:-1], sizes[-1] * old // new), strides, offset * old // new

    def write(self, x: Node, value: Node, dtype: DType, own: DType) -> Node:
        return bits.read_as(value, own)


class _Alias(_Reshape):
    def layout(self, source: Layout, shape: tuple[int, ...]) -> Layout:
        return source


RESHAPE, PERMUTE, SLICE = _Reshape(), _Permute(), _Slice()
EXPAND, WINDOWS = _Expand(), _Windows()
DETACH, DATA = _Detach("detach"), _Detach("data")  # autograd doesn't see writes through `.data`
NO_GRAD = _Detach("no_grad")  # precedes a view that is taken without grad mode
DIAGONAL, AS_STRIDED = _Diagonal(), _Strided()
VIEW_AS_REAL, VIEW_AS_COMPLEX, VIEW_AS_BITS = _Real(), _Complex(), _Bits()
# The same views under the names of PyTorch's functions.
VIEW = _Reshape("view")
SELECT, UNSQUEEZE = _Slice("select"), _Unsqueeze("unsqueeze")
SQUEEZE, SQUEEZE_ONE, SQUEEZE_SOME = (_Squeeze("squeeze", form) for form in range(3))
UNFOLD = WINDOWS
ALIAS = _Alias("alias")
TRANSPOSE, T = _Permute("transpose"), _Permute("t")
SPLIT = _Slice("split", multiple=True)
SPLIT_WITH_SIZES = _Slice("split_with_sizes", multiple=True)
UNBIND = _Slice("unbind", multiple=True)


Links = tuple[tuple[View, tuple[Any, ...]], ...]
"""Views with their attrs, from the base outwards."""


class Chain:
    """Views of views of a base: `view` with `attrs` of `parent`, a chain or the base's shape.

    `chained` makes equal chains one object as a rule, so they compare by identity and cache their
    properties.

    links: each view with its attrs. layout: in a contiguous base; None if strides can't
        express it. size: the shape, where the layout is known.
    only_detaches: whether it shows every element in the place where the base has it. detaches:
        whether a detach() is among its links, is_data: `.data`.
    is_untracked: whether it was taken without grad mode from a base with gradients.
    retypes: whether its dtype may be another one than its base's.
    repeats: whether it may show an element twice. multiple: the last link whose call returned
        several views, or None.
    bytes: the bytes of an element, the offset and the strides for the latest dtype.
    """

    __slots__ = (
        "_element",
        "attrs",
        "base",
        "bytes",
        "detaches",
        "is_data",
        "is_untracked",
        "layout",
        "links",
        "multiple",
        "only_detaches",
        "parent",
        "repeats",
        "retypes",
        "size",
        "view",
    )

    _element: tuple[tuple[int, ...], tuple[int, ...]]
    base: Size
    bytes: tuple[int, int, tuple[int, ...]]
    layout: Layout | None
    links: Links
    size: Size | None
    repeats: bool
    multiple: View | None
    detaches: bool
    is_data: bool
    is_untracked: bool
    only_detaches: bool
    retypes: bool

    def __init__(self, parent: Chain | Size, view: View, attrs: tuple[Any, ...]):
        self.parent, self.view, self.attrs = parent, view, attrs
        self.bytes = _NO_BYTES
        source: Layout | None
        if parent.__class__ is Chain:
            self.base, source = parent.base, parent.layout
            self.links = (*parent.links, (view, attrs))
            self.repeats, self.multiple = parent.repeats, parent.multiple
            self.is_untracked, self.only_detaches = parent.is_untracked, parent.only_detaches
            self.detaches, self.is_data = parent.detaches, parent.is_data
            self.retypes = parent.retypes
        else:
            self.base, source = parent, _whole(parent)  # type: ignore[assignment, arg-type]
            self.links = ((view, attrs),)
            self.repeats, self.multiple = False, None
            self.is_untracked, self.only_detaches = False, True
            self.detaches = self.is_data = self.retypes = False
        if view.detaches:
            self.detaches, self.is_untracked = True, view is NO_GRAD
            self.is_data = self.is_data or view is DATA
            self.multiple = None
        else:
            self.only_detaches = False
            if view.multiple:
                self.multiple = view
        if view.retypes:
            self.retypes = True
        if source is None:
            self.layout = self.size = None
            return
        if not self.repeats:
            self.repeats = view.repeats(source, *attrs)
        self.layout = layout = view.layout(source, *attrs)
        self.size = None if layout is None else shape_of(layout[0])

    @classmethod
    def of_element(
        cls, parent: Chain | Size, key: tuple[int, ...], shape: tuple[int, ...], offset: int
    ) -> Chain:
        """The chain of the element of `parent`, which has this shape, that lies at `offset`. It is
        complete once more is asked for: most elements are read, and never seen again."""
        chain = cls.__new__(cls)
        chain.parent, chain.view, chain._element = parent, SELECT, (key, shape)
        chain.layout, chain.size, chain.retypes = ((), (), offset), _NO_SIZES, False
        chain.bytes = _NO_BYTES
        return chain

    def __getattr__(self, name: str) -> Any:
        if name not in Chain.__slots__:
            raise AttributeError(f"a Chain has no attribute {name!r}")
        key, shape = self._element
        place = tuple([k % n for k, n in zip(key, shape)])
        after = tuple([k + 1 for k in place])
        Chain.__init__(self, self.parent, SELECT, (place, after, (1,) * len(place), ()))
        return getattr(self, name)

    def __reduce__(self) -> Any:
        return chained, (self.parent, self.view, self.attrs)


_NO_SIZES = Size(())
_NO_BYTES: tuple[int, int, tuple[int, ...]] = (0, 0, ())


@functools.lru_cache(1024)
def _whole(shape: Size) -> Layout:
    """The layout of contiguous memory."""
    return tuple(shape), contiguous_strides(shape), 0


_chains: dict[Any, Chain] = {}
REMEMBERED = 8192
"""The most chains kept. It bounds the memory of loops that slice at ever new places."""


def chained(parent: Chain | Size, view: View, attrs: tuple[Any, ...]) -> Chain:
    """The chain that continues `parent` with `view`."""
    key = (parent, view, attrs)
    found = _chains.get(key)
    if found is None:
        if len(_chains) >= REMEMBERED:
            _chains.clear()
        found = Chain(parent, view, attrs)
        if len(found.links) > _LONG:
            found = _same_before(found) or found
        _chains[key] = found
    return found


_LONG = 32
"""The links from which on a chain ends where one of its parts shows the same: in a loop that turns
a tensor to and fro each link would cost more than the one before."""


def _same_before(chain: Chain) -> Chain | None:
    """A part of a chain, few links before, that shows the same, as nearly related to the base."""
    before, layout = chain.parent, chain.layout
    for _ in range(_LONG):
        if not isinstance(before, Chain):
            break
        if before.layout == layout is not None and _kind_of(before) == _kind_of(chain):
            return before
        before = before.parent
    return None


def _kind_of(chain: Chain) -> tuple[Any, ...]:
    return (
        chain.detaches, chain.is_data, chain.is_untracked, chain.retypes,
        chain.multiple, chain.only_detaches,
        chain.retypes and tuple([link for link in chain.links if link[0].retypes]),
    )  # fmt: skip


def element(parent: Chain | Size, key: tuple[Any, ...]) -> Chain | None:
    """The chain of one element of `parent`; None if `key` isn't an int for each dimension, or the
    place in memory isn't known."""
    layout: Any
    if parent.__class__ is Chain:
        layout = None if parent.retypes else parent.layout
    else:
        layout = _whole(parent)  # type: ignore[arg-type]
    if layout is None or len(key) != len(layout[0]):
        return None
    shape, strides, offset = layout
    for place, size, stride in zip(key, shape, strides):
        if place.__class__ is not int or not -size <= place < size:
            return None
        offset += (place if place >= 0 else place + size) * stride
    found = _elements.get((parent, key))
    if found is None:
        if len(_elements) >= REMEMBERED:
            _elements.clear()
        found = _elements[parent, key] = Chain.of_element(parent, key, shape, offset)
    return found


_elements: dict[Any, Chain] = {}


def seen(base: Node, view: View, attrs: tuple[Any, ...]) -> Node:
    """The node of a view of `base`. It is another one even where the view shows all of it as it is,
    as the gradient of the view is only a part of the base's."""
    node = view.node(base, *attrs)
    if node is base and base.requires_grad and not view.detaches:
        node = ops.alias(base, 0)
    if node.requires_grad and node is not base:
        node.memo.setdefault("call", (view, (base, *attrs)))
    return node


def apply(base: Node, chain: Chain | None) -> Node:
    """The view of `base` that `chain` describes."""
    for view, attrs in chain.links if chain is not None else ():
        base = seen(base, view, attrs)
    return base


def write(base: Node, chain: Chain | None, value: Node) -> Node:
    """`base` with the part that the chain shows replaced by `value`."""
    if chain is not None and chain.detaches and base.requires_grad:
        return ops.with_value(base, write(ops.detach(base), chain, value))
    if chain is not None and chain.repeats:
        return _write_places(base, chain, value)
    links = _joined(chain.links) if chain is not None else ()
    if not links:
        return value
    stages = [base]
    for view, attrs in links[:-1]:
        stages.append(view.node(stages[-1], *attrs))
    inside, seen = None, base
    for (view, attrs), stage in zip(reversed(links), reversed(stages), strict=True):
        if inside is not None and not view.moves:
            value, inside = ops.where(inside, value, seen), None
        value, inside = view.put(stage, value, inside, *attrs)
        seen = stage
    return value if inside is None else ops.where(inside, value, base)


_ALL_REMAIN = ((), (None,))
"""The fourth fact of a slice that drops no dimension."""


def _joined(links: Links) -> Links:
    """Links in which no slice follows a slice of the same dimensions."""
    joined: list[tuple[View, tuple[Any, ...]]] = []
    for view, attrs in links:
        outer = joined[-1][1] if joined and isinstance(joined[-1][0], _Slice) else None
        if outer is not None and isinstance(view, _Slice) and outer[3:4] in _ALL_REMAIN:
            attrs = (*_slice_of_slice(outer, attrs), *attrs[3:])
            joined.pop()
        joined.append((view, attrs))
    return tuple(joined)


def _slice_of_slice(outer: tuple[Any, ...], inner: tuple[Any, ...]) -> tuple[Any, ...]:
    """The starts, stops and steps of a slice that is taken of another one."""
    starts = tuple([a + s * b for a, s, b in zip(outer[0], outer[2], inner[0])])
    steps = tuple([s * t for s, t in zip(outer[2], inner[2])])
    sizes = [max(0, -(-(b - a) // s)) for a, b, s in zip(*inner[:3])]
    stops = tuple([a + max((n - 1) * s + 1, 0) for a, n, s in zip(starts, sizes, steps)])
    return starts, stops, steps


def overlap_error() -> RuntimeError:
    """Of a write to a view with elements that share memory."""
    return RuntimeError(
        "unsupported operation: more than one element of the written-to tensor refers to a "
        "single memory location. Please clone() the tensor before performing the "
        f"operation.{at_user_line()}"
    )


def _write_places(base: Node, chain: Chain, value: Node) -> Node:
    """`write` by the places in memory that the chain shows."""
    assert chain.layout is not None, "views are made only where strides exist"
    if not _is_uniform(value) and has_overlap(*chain.layout[:2]):
        raise overlap_error()
    if 0 in value.shape:
        return base
    part = memory_slice(*chain.layout)
    if part is not None:
        start, stop, step = part
        flat, line = ops.reshape(base, (-1,)), ops.reshape(value, (-1,))
        return ops.reshape(SLICE.write(flat, line, (start,), (stop,), (step,)), base.shape)
    return ops.set_strided(base, value, *chain.layout)


def _is_uniform(value: Node) -> bool:
    """Whether all elements are equal by construction, so that their order doesn't matter."""
    while value.op in (ops.expand_op, ops.reshape_op, ops.cast) and value.shape != ():
        value = value.operands[0]
    return numel(value.shape) == 1


def has_overlap(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements share a place in memory."""
    if 0 in shape:
        return False
    dims = sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1)
    # Elements can't coincide if each stride exceeds the reach of all smaller ones together.
    if all(
        stride > before
        for (stride, _), before in zip(
            dims, itertools.accumulate((t * (n - 1) for t, n in dims), initial=0)
        )
    ):
        return False
    if any(stride == 0 for stride, _ in dims):
        return True
    places = np.zeros(1, np.int64)
    for stride, size in dims:
        places = np.add.outer(places, np.arange(size) * stride).reshape(-1)
    return len(np.unique(places)) < len(places)


def seen_in(array: np.ndarray, chain: Chain | None) -> np.ndarray | None:
    """What a view shows of the memory of its base. None where strides can't express it."""
    if chain is None:
        return array
    if chain.layout is None or not array.flags.c_contiguous:
        return None
    dtype = array.dtype
    if chain.retypes:
        if dtype.kind != "c" or not is_of_parts(chain):
            return None
        dtype = np.dtype(f"f{dtype.itemsize // 2}")
    size, begin, steps = chain.bytes
    if size != dtype.itemsize:
        size = dtype.itemsize
        shape, strides, offset = chain.layout
        begin = 0 if 0 in shape else size * offset  # which may lie behind the memory
        steps = tuple([size * s for s in strides])
        chain.bytes = size, begin, steps
    return np.ndarray(chain.layout[0], dtype, array, begin, steps)


@functools.lru_cache(1024)
def is_of_parts(chain: Chain) -> bool:
    """Whether a chain goes from complex numbers to their parts, and has no other dtype between."""
    return [view for view, _ in chain.links if view.retypes] == [VIEW_AS_REAL]


def is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the elements lie row-major without gaps. Dimensions of size 1, and empty tensors, may
    have any strides."""
    if 0 in shape:
        return True
    expected = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def numel(shape: Size | tuple[int, ...]) -> int:
    return math.prod(shape)
