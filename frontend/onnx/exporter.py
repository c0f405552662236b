"""Exporter: builds an ONNX graph."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT, FLOAT8, DType, float8_e4m3fn, float64, int64
from tilewright.ir.node import Node, format_location
from tilewright.ir.op import Kind, Op
from tilewright.ir.reference import evaluate

from ..inspection.tracing import Recording
from .align import Alignment, Extent, Traced, Varying, VaryingNumber, varies
from .errors import OnnxExporterError, SizeUnknown, UnsupportedOperatorError
from .package import require_onnx
from .sizes import Expression, express, express_number
from .whole import keep_whole, whole_call

Form = Callable[..., "str | None"]
"""form(exporter, traced, *inputs) adds a node's ONNX form and returns the name of its value, or
None if the node must be decomposed."""

FORMS: dict[Op, Form] = {}
WHOLE_FORMS: dict[Any, Form] = {}
"""Builders whose calls stay whole -> the form of one of the call's results (see `whole.py`)."""
UNSUPPORTED: dict[Op, str] = {}
"""Ops without an ONNX form -> the reason."""

LARGEST_FOLD = 4096
"""The most elements of a value without inputs that is computed at export."""


def form(*which: Op) -> Callable[[Form], Form]:
    """Registers the ONNX form of ops."""

    def register(function: Form) -> Form:
        for op in which:
            FORMS[op] = function
        return function

    return register


def whole(*builders: Callable[..., Any]) -> Callable[[Form], Form]:
    """Registers the ONNX form of whole calls of builders."""

    def register(function: Form) -> Form:
        for build in builders:
            WHOLE_FORMS[build] = function
            keep_whole(build)
        return function

    return register


def plain(op: Op) -> bool:
    """Whether the operator named in the record is the op's whole form."""
    return isinstance(op.onnx, str) and not op.params and op not in FORMS


class Exporter:
    """Turns traced nodes into ONNX nodes.

    recordings: of the model. The first one supplies constants. inputs, parameters: names of leaves,
    by their source (Recording.sources).
    """

    def __init__(self, recordings: Sequence[Recording], inputs: dict[int, str], opset: int):
        self.onnx = require_onnx()
        self.recordings = recordings
        self.inputs = inputs
        self.opset = opset
        self.alignment = Alignment(lambda i, n: recordings[i].sources[n.attrs[0]])
        self.nodes: list[Any] = []
        self.paths: list[str] = []  # of the modules of `nodes`
        self.scopes: Mapping[Node, str] = {}  # the module of each node of the first recording
        self.initializers: dict[str, np.ndarray] = {}
        self.types: dict[str, tuple[DType, tuple[Extent, ...]]] = {}
        self.symbols: dict[Varying, str] = {}  # sizes that the user named
        self.translations: Mapping[Any, Form] = {}  # the user's forms of calls that stay whole
        self.domains: dict[str, int] = {}  # operator sets beside ONNX's own, with their versions
        self.functions: dict[tuple[str, str], Any] = {}  # (domain, name) -> function of the model
        self._values: dict[Traced, str] = {}
        self._taken: set[str] = set(inputs.values())
        self._constants: dict[Any, str] = {}
        self._made: dict[Any, tuple[str, ...]] = {}
        self._dims: dict[Varying, tuple[str, int]] = {}  # size -> (value, axis) to read it from
        self._extents: dict[Varying, str] = {}
        self._folded: dict[Traced, bool] = {}
        self.results: list[Traced] = []
        self._leaves: Sequence[str] | None = None  # names of the leaves of a step of a loop
        self._users: collections.Counter[Traced] | None = None
        self._active: list[Traced] = []  # nodes being converted, innermost last

    # ---- graph → names ----------------------------------------------------------------------

    def value(self, traced: Traced) -> str:
        """The name of a node's value. Adds the node and its operands where they are missing."""
        stack = [traced]
        while stack:
            top = stack[-1]
            if top in self._values:
                stack.pop()
                continue
            missing = [] if self._is_folded(top) else top.operands[::-1]
            missing = [o for o in missing if o not in self._values]
            if missing:
                stack += missing
                continue
            name = self._lower(top)
            self._values[top] = name
            self.know(name, top.dtype, top.shape)
        return self._values[traced]

    def know(self, name: str, dtype: DType, shape: tuple[Extent, ...]) -> None:
        """Note a value's dtype and shape, and that its sizes can be read from it."""
        self.types.setdefault(name, (dtype, shape))
        for axis, extent in enumerate(shape):
            if isinstance(extent, Varying):
                self._dims.setdefault(extent, (name, axis))

    def _lower(self, t: Traced) -> str:
        self._active.append(t)
        try:
            return self._form(t)
        except OnnxExporterError:
            raise
        except Exception as error:
            raise OnnxExporterError(
                f"export of {t} failed: {type(error).__name__}: {error}"
            ) from error
        finally:
            self._active.pop()

    @property
    def _at(self) -> Traced | None:
        """The node being converted, if any."""
        return self._active[-1] if self._active else None

    def _form(self, t: Traced) -> str:
        op = t.op
        if t.dtype.is_complex or any(o.dtype.is_complex for o in t.operands):
            raise UnsupportedOperatorError(
                f"export: {t} computes complex numbers, for which ONNX has next to no operators: "
                "compute their parts, as of torch.view_as_real(x)"
            )
        if self._is_folded(t):
            return self.constant(self._fold(t.nodes[0]))
        if op.kind is Kind.LEAF:
            return self._leaf(t)
        if op.kind is Kind.CONSTANT:
            return self._constant(t)
        if op in UNSUPPORTED:
            raise UnsupportedOperatorError(f"export: {t} has no ONNX form: {UNSUPPORTED[op]}")
        if t.dtype in FLOAT8 and self.opset < 19:
            raise UnsupportedOperatorError(
                f"export: {t} is {t.dtype}, which ONNX has from opset 19 on: pass opset_version=19"
            )
        inputs = [self._values[o] for o in t.operands]
        made: str | None = None
        if op is whole_call:
            build = t.nodes[0].attrs[0]
            form_of = self.translations.get(build) or WHOLE_FORMS[build]
            made = form_of(self, t, *inputs)
        elif op in FORMS:
            made = FORMS[op](self, t, *inputs)
        elif callable(op.onnx):
            made = op.onnx(self, t, *inputs)
        elif plain(op):
            made = self.add(str(op.onnx), *inputs)
        if made is not None:
            return made
        if op.decompose is None:
            raise UnsupportedOperatorError(
                f"export: {t} has no ONNX form for {t.dtype} at opset {self.opset}"
            )
        return self.value(self.alignment.decomposed(t))

    def _leaf(self, t: Traced) -> str:
        place = t.nodes[0].attrs[0]
        if self._leaves is not None:
            return self._leaves[place]
        if t.op is ops.scalar:
            return self.constant(np.asarray(self.recordings[0].scalars[place], t.dtype.np))
        source = self.recordings[0].sources[place]
        if source in self.inputs:
            return self.inputs[source]
        value = self.recordings[0].values[place]
        if source.startswith("constant "):
            return self.constant(value)
        if source not in self.initializers:
            self._taken.add(source)
            self.initializers[source] = value
        return source

    def _constant(self, t: Traced) -> str:
        values = [ops.constant_value(n) for n in t.nodes]
        if len({v.tobytes() for v in values}) == 1:
            return self.constant(np.asarray(values[0]))
        return self._number([v.item() for v in values], t.dtype)

    def _number(self, values: Sequence[Any], dtype: DType) -> str:
        """A number that varies, as a 0-d tensor."""
        counted = self._counted(values)
        if counted is not None:
            return self.cast(counted, dtype)
        found = express_number([float(v) for v in values], list(self._dims))
        if found is None:
            where = (
                "" if self._at is None else f", used at {format_location(self._at.nodes[0].loc)}"
            )
            raise SizeUnknown(
                "export: a number in the graph depends on the sizes of dynamic axes in a way that "
                f"can't be expressed: it is {' or '.join(map(str, dict.fromkeys(values)))}{where}"
            )
        # Numbers of integers are made by int64, others by the float in which they are divided.
        exact = dtype.category != FLOAT and found.denominator == 1
        wide = dtype if dtype.category == FLOAT else int64 if exact else float64
        parts = [
            self.number(part, wide)
            if isinstance(part, int)
            else self.cast(self._scalar(part), wide)
            for part in (found.numerator, found.denominator)
        ]
        out = parts[0] if found.denominator == 1 else self.add("Div", *parts)
        for op_type in found.functions:
            out = self.add(op_type, out)
        return out if wide is dtype else self.cast(out, dtype)

    def _counted(self, values: Sequence[Any]) -> str | None:
        """The number of elements of a tensor, as a 0-d int64 tensor."""
        for name, (_, shape) in self.types.items():
            if varies(shape) and tuple(values) == _counts(shape, len(values)):
                return self.add("Size", name)
        return None

    def _scalar(self, expression: Expression) -> str:
        return self.add("Squeeze", self._computed(expression), self.ints([0]))

    # ---- values without inputs --------------------------------------------------------------

    def _is_folded(self, t: Traced) -> bool:
        """Whether `t` depends on constants and positions alone, equal in every recording."""
        known = self._folded.get(t)
        if known is not None:
            return known
        stack = [t]
        while stack:
            top = stack[-1]
            waiting = [o for o in top.operands if o not in self._folded]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            self._folded[top] = (
                all(n is top.nodes[0] for n in top.nodes)
                and top.op.kind is not Kind.LEAF
                and (bool(top.operands) or top.op is ops.iota)
                and all(self._folded[o] or o.op.kind is Kind.CONSTANT for o in top.operands)
                and (callable(top.op.numpy) or top.op.kind is Kind.ELEMENTWISE)
                and top.nodes[0].shape.numel() <= LARGEST_FOLD
            )
        return self._folded[t]

    def _fold(self, node: Node) -> np.ndarray:
        if node.op.kind is Kind.CONSTANT:
            return np.asarray(ops.constant_value(node))
        with np.errstate(all="ignore"):
            return np.asarray(evaluate(node, [self._fold(o) for o in node.operands]))

    # ---- for the forms ----------------------------------------------------------------------

    def add(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output. Returns the output's name."""
        return self.add_many(op_type, 1, *inputs, **attributes)[0]

    def add_many(
        self, op_type: str, outputs: int, *inputs: str, **attributes: Any
    ) -> tuple[str, ...]:
        """Add a node with several outputs, unless an equal one exists. Returns the outputs'
        names."""
        for name, value in attributes.items():
            if varies(value):
                raise self._varies(name)
        key = (op_type, outputs, inputs, repr(sorted(attributes.items())))
        found = self._made.get(key)
        if found is not None:
            return found
        stem = self._at.op.name if self._at is not None else op_type.lower()
        names = tuple(self.fresh(stem) for _ in range(outputs))
        node = self.onnx.helper.make_node(
            op_type, list(inputs), list(names), name=self._node_name(op_type, inputs), **attributes
        )
        if self._at is not None:
            file, line = self._at.nodes[0].loc
            node.doc_string = f"{self._at.op.name} at {file}:{line}"
        self.nodes.append(node)
        self.paths.append(self._path())
        self._made[key] = names
        return names

    def step(
        self, steps: Sequence[tuple[tuple[Node, ...], tuple[Node, ...]]], leaves: Sequence[str]
    ) -> tuple[list[Any], list[str]]:
        """The nodes and the results of one step of a loop, for a graph inside this one.

        steps: the step's leaves and results in each recording. leaves: their names; those of values
        outside may be among them.
        """
        before = {name: getattr(self, name) for name in _OF_A_GRAPH}
        known = dict(self.types)
        alignment = Alignment(lambda _, node: node.attrs[0])
        own = {"alignment": alignment, "_leaves": leaves, "_dims": dict(self._dims), "_users": None}
        fresh = {n: own[n] if n in own else type(value)() for n, value in before.items()}
        try:
            for name, value in fresh.items():
                setattr(self, name, value)
            traced = [alignment.trace(each) for each in zip(*(r for _, r in steps), strict=True)]
            self.results = list(traced)
            names = [self.value(t) for t in traced]
            return self.nodes, names
        finally:
            for name, value in before.items():
                setattr(self, name, value)
            self.types = known

    def made_by(self, value: str) -> dict[str, Any]:
        """The attributes of the node that made `value`."""
        node = next(n for n in reversed(self.nodes) if value in n.output)
        get = self.onnx.helper.get_attribute_value
        return {attribute.name: get(attribute) for attribute in node.attribute}

    def users(self, t: Traced) -> int:
        """The number of nodes and outputs that read `t`."""
        if self._users is None:
            self._users = collections.Counter(
                operand for each in self.alignment.known.values() for operand in each.operands
            )
            self._users.update(self.results)
        return self._users[t]

    def fresh(self, stem: str) -> str:
        """An unused name."""
        name, number = stem, 0
        while name in self._taken:
            number += 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def _node_name(self, op_type: str, inputs: Sequence[str]) -> str:
        """A node's name with its module, or with that of its parameters: layers.0/Gemm."""
        path = self._path()
        if path:
            return self.fresh(f"{path}/{op_type}")
        owners = [i.rpartition(".")[0] for i in inputs if i in self.initializers]
        owners = [o for o in owners if o]
        return self.fresh(f"{owners[0]}/{op_type}" if owners else op_type)

    def _path(self) -> str:
        """The path of the module in which what is converted was recorded."""
        found = (self.scopes.get(t.nodes[0]) for t in reversed(self._active))
        return next((path for path in found if path is not None), "")

    def constant(self, array: Any, dtype: DType | None = None) -> str:
        """An initializer holding `array`."""
        if varies(array):
            raise self._varies("value")
        array = np.asarray(array, dtype=None if dtype is None else dtype.np, order="C")
        key = (array.dtype, array.shape, array.tobytes())
        name = self._constants.get(key)
        if name is None:
            name = self._constants[key] = self.fresh("constant")
            self.initializers[name] = array
        return name

    def weight(self, name: str, array: np.ndarray) -> str:
        """An initializer with a name, for a parameter in another form."""
        if name not in self.initializers:
            self._taken.add(name)
            self.initializers[name] = array
        return name

    def extent(self, size: Extent) -> str:
        """A size as an int64 tensor of shape [1]."""
        if not isinstance(size, Varying):
            return self.constant(np.array([size], np.int64))
        name = self._extents.get(size)
        if name is None:
            found = express(size, list(self._dims)) or self._express_later(size)
            if found is None:
                where = f" of {self._at}" if self._at is not None else ""
                raise SizeUnknown(
                    f"export: a size{where} depends on the dynamic axes in a way that can't be "
                    f"expressed: it is {' or '.join(map(str, dict.fromkeys(size)))} where the "
                    f"dynamic axes are {self._probed()}"
                )
            name = self._extents[size] = self._computed(found)
        return name

    def _express_later(self, size: Varying) -> Expression | None:
        """`size` in terms of the shapes of later tensors that don't depend on its readers."""
        later: dict[Varying, Traced] = {}
        dependent: dict[Traced, bool] = dict.fromkeys(self._active, True)
        for t in self.alignment.known.values():  # operands first
            if t not in dependent:
                dependent[t] = any(dependent.get(o, False) for o in t.operands)
            if not dependent[t]:
                for extent in t.shape:
                    if isinstance(extent, Varying) and extent not in self._dims:
                        later.setdefault(extent, t)
        found = express(size, [*self._dims, *later])
        for size in found.sizes if found else ():
            if size in later:
                self.value(later[size])
        return found

    def _probed(self) -> str:
        names = [f"{name} = {' or '.join(map(str, size))}" for size, name in self.symbols.items()]
        return ", ".join(names)

    def _computed(self, expression: Expression) -> str:
        """An expression's value as an int64 tensor of shape [1]."""
        out = ""
        for factor, sizes in expression.terms:
            term = self.ints([factor]) if factor != 1 else ""
            for size in sizes:
                value, axis = self._dims[size]
                part = self.add("Shape", value, start=axis, end=axis + 1)
                term = self.add("Mul", term, part) if term else part
            out = self.add("Add", out, term) if out else term
        for op_type, number, neutral in (
            ("Add", expression.offset, 0),
            ("Div", expression.divisor, 1),
            ("Mod", expression.modulus, 0),
            ("Mul", expression.scale, 1),
            ("Add", expression.shift, 0),
        ):
            if number != neutral:
                out = self.add(op_type, out, self.ints([number]))
        return out

    def extent0d(self, size: Extent) -> str:
        """A size as a 0-d int64 tensor."""
        if not isinstance(size, Varying):
            return self.constant(np.array(size, np.int64))
        return self.add("Squeeze", self.extent(size), self.ints([0]))

    def ints(self, values: Sequence[Extent]) -> str:
        """Sizes as a 1-d int64 tensor."""
        if not any(isinstance(v, Varying) for v in values):
            return self.constant(np.array(values, np.int64).reshape(len(values)))
        parts: list[str] = []
        run: list[int] = []
        for value in [*values, None]:
            if isinstance(value, int):
                run.append(value)
                continue
            if run:
                parts.append(self.constant(np.array(run, np.int64)))
                run = []
            if value is not None:
                parts.append(self.extent(value))
        return parts[0] if len(parts) == 1 else self.add("Concat", *parts, axis=0)

    def cast(self, value: str, dtype: DType) -> str:
        # Numbers beyond the range of float8_e4m3fn become its largest one.
        more = {"saturate": int(dtype is float8_e4m3fn)} if dtype in FLOAT8 else {}
        return self.add("Cast", value, to=self.element_type(dtype), **more)

    def element_type(self, dtype: DType) -> int:
        return int(self.onnx.helper.np_dtype_to_tensor_dtype(dtype.np))

    def number(self, value: Any, like: Traced | DType) -> str:
        """A 0-d number of the dtype of `like`: a constant, or computed from sizes if it varies."""
        dtype = like.dtype if isinstance(like, Traced) else like
        if isinstance(value, (Varying, VaryingNumber)):
            return self._number(value, dtype)
        return self.constant(value, dtype)

    def static(self, t: Traced, what: str, value: Any) -> Any:
        """Check that `value` doesn't depend on the dynamic axes, since an ONNX attribute holds
        it."""
        if varies(value):
            raise self._varies(what)
        return value

    def _varies(self, what: str) -> OnnxExporterError:
        where = "" if self._at is None else f" of {self._at}"
        return OnnxExporterError(
            f"export: the {what}{where} depends on the size of a dynamic axis, and ONNX wants a "
            "number there"
        )


_OF_A_GRAPH = (
    "alignment", "nodes", "paths", "results", "_values", "_made", "_dims", "_extents", "_folded",
    "_users", "_leaves",
)  # fmt: skip
"""The attributes that belong to the graph that is being written: the model, or a loop's step."""


def _counts(shape: Sequence[Extent], recordings: int) -> tuple[int, ...]:
    """The number of elements in each recording."""
    each = [s if isinstance(s, Varying) else (s,) * recordings for s in shape]
    return tuple(math.prod(sizes) for sizes in zip(*each, strict=True))
