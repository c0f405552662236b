"""autograd.Function: derivatives written by the user."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.shape import Size

from .. import recording
from ..functions import creation
from ..recording import Handle, compounds, epoch, inference, resolve, tape, threads, wrap
from ..recording.states import Aval
from ..recording.wrapping import of_array
from . import api, taped_functions

if TYPE_CHECKING:
    from .._tensor import Tensor


F = TypeVar("F", bound=Callable[..., Any])


class FunctionCtx:
    """The object in which `forward` leaves data for `backward`."""

    def __init__(self) -> None:
        self.saved: tuple[Any, ...] = ()
        self.saved_forward: tuple[Any, ...] = ()  # what `jvp` reads
        self.needs_input_grad: tuple[bool, ...] = ()
        self.nondifferentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.materialize = True
        self._versions: list[int | None] = []
        self._outputs: dict[int, int] = {}  # place of a saved output -> that among the outputs
        self._given: list[weakref.ref[Any]] = []  # what the caller got in place of saved outputs
        self._inputs: dict[int, int] = {}  # the same for saved inputs, where values are packed
        self._unpack: Callable[[Any], Any] | None = None  # if hooks have packed what is saved
        self._token: Node | None = None  # the call's node while `backward` runs
        self._call: tape.Call | None = None  # the call while a `backward` runs that is taped
        self._pushes = False  # whether `jvp` runs
        self._own = {*vars(self), "_own"}  # what isn't the user's

    def left(self) -> dict[str, Any]:
        """What `forward` has left here besides tensors, by name."""
        return {name: each for name, each in vars(self).items() if name not in self._own}

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        for t in tensors:
            if t is not None and not isinstance(t, Handle):
                raise TypeError(
                    "save_for_backward can only save variables, but argument has type "
                    f"{type(t).__name__}{at_user_line()}"
                )
        self.saved = tensors
        self._versions = [None if t is None else recording.version(t) for t in tensors]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        if self._pushes:
            return self.saved_forward
        if self._unpack is not None:
            saved = tuple(None if k is None else self._unpack(k) for k in self.saved)
            return tuple([self._connected(i, t) for i, t in enumerate(saved)])
        for t, version in zip(self.saved, self._versions, strict=True):
            if t is not None and recording.version(t) != version:
                raise _modified(t)
        for given in self._given:
            t = given()
            if t is not None and recording.version(t):
                raise _modified(t)
        return tuple([self._connected(i, t) for i, t in enumerate(self.saved)])

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        """Keep what `jvp` reads. Without a `jvp` a forward derivative is that of `backward`."""
        self.saved_forward = tensors

    def _connected(self, i: int, t: Any) -> Any:
        """The i-th saved tensor, so that it can be differentiated again: an output is the one that
        the caller of `apply` got, and an unpacked input has the history of the input."""
        if t is not None and self._call is not None and i in self._outputs:
            return self._call.users.result(self._call, self._outputs[i])  # type: ignore[union-attr]
        if self._token is None or t is None:
            return t
        if i in self._outputs:
            return wrap(function_output(self._token, resolve(t), self._outputs[i]))
        source = self._token.operands[self._inputs[i]] if i in self._inputs else None
        if source is None or not source.requires_grad:
            return t
        with recording.grad_mode(True):  # it requires a gradient in any case, as the input does
            return wrap(ops.with_value(source, resolve(t)))

    def _pack(self, hooks: Any, inputs: Sequence[Any]) -> None:
        """Have hooks pack what is saved."""
        places = {id(t): k for k, t in enumerate(inputs)}
        self._inputs = {i: places[id(t)] for i, t in enumerate(self.saved) if id(t) in places}
        self.saved = tuple(None if t is None else hooks.pack(t) for t in self.saved)
        self._unpack = hooks.unpack

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        self.nondifferentiable = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        self.dirty = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize = value


def _modified(saved: Any) -> RuntimeError:
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace "
        f"operation: {list(saved.shape)}{at_user_line()}"
    )


class VmapInfo(NamedTuple):
    """What `Function.vmap` is told: how many examples there are, and the randomness of the vmap."""

    batch_size: int
    randomness: str


mapping: list[Callable[[Any, Sequence[Any]], tuple[bool, Any]]] = []
"""The calls of vmap that are under way, each as a function of a Function and its arguments for one
example. It calls the Function's `vmap` on all examples. Returns (whether the result is
differentiated inside of that call of vmap, the result for one example), with NotImplemented in
place of a result if the arguments don't depend on the example."""


class Function:
    """Subclass it with static methods forward(ctx, *args) and backward(ctx, *grads), call `apply`.

    Alternatively forward(*args) with setup_context(ctx, inputs, output). A static method jvp(ctx,
    *tangents) is the derivative in forward mode; without it that is the one of `backward`. A static
    method vmap(info, in_dims, *args), if there is one, computes `forward` for all examples of a
    `torch.vmap`; it returns (outputs, the dimensions of the examples in them). Without it vmap
    goes through what `forward` computes, whatever `generate_vmap_rule` says.
    """

    generate_vmap_rule = False

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], *args: Any) -> Any:
        raise NotImplementedError("the vmap of this autograd.Function is not implemented")

    @staticmethod
    def forward(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "You must implement the forward function for custom autograd.Function."
        )

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        raise NotImplementedError("setup_context is not implemented")

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError(
            "Legacy autograd function with non-static forward method is deprecated. Please use "
            "new-style autograd function with static forward method: call its `apply`"
            + at_user_line()
        )

    @staticmethod
    def backward(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "You must implement either the backward or vjp method for your custom "
            "autograd.Function to use it with backward mode AD."
        )

    vjp = backward

    @staticmethod
    def jvp(*args: Any, **options: Any) -> Any:
        raise NotImplementedError(
            "You must implement the jvp function for custom autograd.Function to use it with "
            "forward mode AD."
        )

    @classmethod
    @threads.gives_way
    def apply(cls, *args: Any) -> Any:
        """Run `forward` without recording it, with `backward` as its derivative."""
        ctx = FunctionCtx()
        ctx.needs_input_grad = tuple(isinstance(a, Handle) and a.requires_grad for a in args)
        if mapping and cls.vmap is not Function.vmap:
            inside, output = mapping[-1](cls, args)
            if output is not NotImplemented and not inside:
                return output
        else:
            output = NotImplemented
        with recording.grad_mode(False):
            if cls.setup_context is not Function.setup_context:
                output = cls.forward(*args) if output is NotImplemented else output
                cls.setup_context(ctx, args, output)
            else:
                output = cls.forward(ctx, *args)
        if not recording.is_grad_enabled() or not any(ctx.needs_input_grad):
            return output
        return _connect(cls, ctx, args, output)


def _connect(cls: type[Function], ctx: FunctionCtx, args: Sequence[Any], result: Any) -> Any:
    outputs = result if isinstance(result, tuple) else (result,)
    inputs = [_elements(a) for a in args if isinstance(a, Handle)]
    differentiable = [
        isinstance(o, Handle)
        and o.dtype.is_differentiable
        and not any(o is n for n in ctx.nondifferentiable)
        for o in outputs
    ]
    places = {id(o): i for i, o in enumerate(outputs) if differentiable[i]}
    ctx._outputs = {k: places[id(t)] for k, t in enumerate(ctx.saved) if id(t) in places}
    for t in ctx.dirty:
        if t.is_leaf and t.requires_grad:
            raise RuntimeError(
                "a leaf Variable that requires grad is being used in an in-place operation."
                f"{at_user_line()}"
            )
    if epoch.inferred:
        inference.refuse_kept(ctx.saved)
    hooks = recording.clock.saving
    if hooks is not None and ctx.saved:
        ctx._pack(hooks, inputs)
    derivative = _Derivative(cls, ctx, args, inputs, outputs, sum(differentiable))
    out: Any = None
    if hooks is None and not ctx.dirty:
        given = {i: o for i, o in enumerate(outputs) if differentiable[i]}
        taped = taped_functions.noted(derivative, inputs, given)
        if taped is not None:
            out = [taped.get(i, o) for i, o in enumerate(outputs)]
    if out is None:
        out = _recorded(derivative, outputs, differentiable)
    out = [
        o.detach() if not differentiable[i] and isinstance(o, Handle) and o.requires_grad else o
        for i, o in enumerate(out)
    ]
    ctx._given = [weakref.ref(out[i]) for i in ctx._outputs.values()]
    return tuple(out) if isinstance(result, tuple) else out[0]


def _recorded(
    derivative: _Derivative, outputs: Sequence[Any], differentiable: Sequence[bool]
) -> list[Any]:
    """The outputs of a call, the differentiable ones with its derivative."""
    ctx, out = derivative.ctx, []
    with recording.hold():
        place = len(recording.contexts)
        recording.contexts.append(derivative.context())
        # Recorded anew each time: the context belongs to this call.
        token = function_call(*[resolve(a) for a in derivative.inputs], place)
        for i, o in enumerate(outputs):
            if not differentiable[i]:
                out.append(o)
            elif any(o is d for d in ctx.dirty):
                ctx._outputs = {k: j for k, j in ctx._outputs.items() if j != i}
                made = derivative.output(token, resolve(o), i)
                out.append(recording.assign(o, made, force=True))
            else:
                out.append(wrap(derivative.output(token, resolve(o), i)))
    recording.settle()
    return out


def _elements(given: Any) -> Any:
    """The part of an argument that is differentiated: a compound has no node."""
    return given._elements if compounds.is_compound(given) else given


def _cotangent(given: Any, g: Any) -> Any:
    """The part of what `backward` gives that belongs to the part of an argument."""
    is_whole = g is None or not compounds.is_compound(given)
    return g if is_whole else given._elements_of(g)


def _derivative_of(cls: type[Function]) -> Callable[..., Any]:
    """The derivative that a Function has under one of its two names."""
    if cls.vjp is Function.vjp:
        return cls.backward
    if cls.backward is not Function.backward:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You "
            f"should only implement one of them.{at_user_line()}"
        )
    return cls.vjp


class _Derivative:
    """The derivative of one call of a Function: the user's `backward`, or the transpose of `jvp`.
    It is a `recording.tape.Users`, too.

    args: of the call. inputs: the tensors among them. outputs: of `forward`. count: of those that
    are differentiable. values: of these the arrays and avals, by their numbers among all, if the
    call is on the tape, where they are numbered in this order.
    """

    def __init__(
        self,
        cls: type[Function],
        ctx: FunctionCtx,
        args: Sequence[Any],
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        count: int,
    ):
        self.cls, self.ctx, self.args, self.inputs = cls, ctx, args, inputs
        self.count = count
        self.metas = [
            (tuple(o.shape), o.dtype, o._typed()[2]) if isinstance(o, Handle) else None
            for o in outputs
        ]
        self.needed = [a.requires_grad for a in inputs]
        self.backward, self.saves = _derivative_of(cls), bool(ctx.saved)
        self.values: dict[int, tuple[Any, Aval]] = {}

    def __call__(self, cotangents: dict[int, Node], token: Node) -> list[Node | None]:
        """The cotangents of `inputs` as nodes, by those of the outputs. token: of the call."""
        self.ctx._token = token
        try:
            found = self._of({i: wrap(g) for i, g in cotangents.items()})
        finally:
            self.ctx._token = None
        return [None if g is None else resolve(g) for g in found]

    def cotangents(self, call: tape.Call, given: dict[int, Any]) -> list[Any]:
        numbers = [*self.values]
        self.ctx._call = call if recording.is_grad_enabled() else None
        try:
            found = self._of({numbers[i]: g for i, g in given.items()})
        finally:
            self.ctx._call = None
        return [found[i] for i in call.known.template.cotangents]

    def _of(self, given: dict[int, Any]) -> list[Any]:
        """The cotangents of `inputs`, by those of outputs that a gradient reaches."""
        cls, ctx, args = self.cls, self.ctx, self.args
        is_pushed = _pushing and cls.jvp is not Function.jvp
        grads = []
        for i, meta in enumerate(self.metas):
            g = given.get(i)
            if g is None and meta is not None and ctx.materialize and not is_pushed:
                g = creation.zeros(meta[0], dtype=meta[1], device=meta[2])
            grads.append(g)
        derivative = _transposed_jvp(cls, args, self.metas) if is_pushed else self.backward
        result = derivative(ctx, *grads)
        found = result if isinstance(result, tuple) else (result,)
        if len(found) < len(args) or any(g is not None for g in found[len(args) :]):
            raise RuntimeError(
                f"function {cls.__name__}Backward returned an incorrect number of gradients "
                f"(expected {len(args)}, got {len(found)})"
            )
        pairs = zip(args, found, strict=False)
        parts = [_cotangent(a, g) for a, g in pairs if isinstance(a, Handle)]
        told = zip(self.inputs, parts, self.needed, strict=True)
        return [_fitting(cls, a, g) if needs and g is not None else None for a, g, needs in told]

    def nodes(
        self, operands: Sequence[Node], leaf: Callable[[Any, Aval], Node]
    ) -> tuple[Node, ...]:
        token = function_call(*operands, next(_places))
        values = [(i, leaf(*each)) for i, each in self.values.items()]
        return tuple([self.output(token, node, i) for i, node in values])

    def output(self, token: Node, value: Node, number: int) -> Node:
        """The node of a differentiable output."""
        node = function_output(token, value, number)
        node.memo["call"] = self.cls.__name__, token.operands
        node.memo["among"], node.memo["number"] = self.count, number
        node.memo["context"] = weakref.ref(self.ctx)
        return node

    def result(self, call: tape.Call, number: int) -> Any:
        """An output, as the caller of `apply` got it."""
        made = of_array(*self.values[number])
        made._history = tape.Taped(call, [*self.values].index(number))
        return made

    def context(self) -> Any:
        return self, {}

    def free(self) -> None:
        self.ctx, self.args, self.inputs = FunctionCtx(), (), ()
        self.values = {i: (None, aval) for i, (_, aval) in self.values.items()}


_places = itertools.count(1 << 32)
"""Numbers of calls that are on the tape: no place in an epoch."""


_pushing = 0  # the depth of forward derivatives, which are asked for by two passes


@contextmanager
def pushing() -> Iterator[None]:
    """Let passes in the block go through a Function by its `jvp`, if it has one."""
    global _pushing
    _pushing += 1
    try:
        yield
    finally:
        _pushing -= 1


def _transposed_jvp(
    cls: type[Function], args: Sequence[Any], metas: Sequence[Any]
) -> Callable[..., Any]:
    """The derivative of a Function whose transpose is its `jvp`. metas: of the outputs."""

    def backward(ctx: FunctionCtx, *cotangents: Any) -> tuple[Any, ...]:
        is_tensor = [isinstance(a, Handle) and a.dtype.is_differentiable for a in args]
        with recording.grad_mode(True):
            tangents = [
                creation.zeros_like(a).requires_grad_() if each else None
                for a, each in zip(args, is_tensor, strict=True)
            ]
            ctx._pushes = True
            try:
                made = cls.jvp(ctx, *tangents)
            finally:
                ctx._pushes = False
            pushed = made if isinstance(made, tuple) else (made,)
            if len(pushed) != len(metas):
                raise RuntimeError(
                    "Function's jvp returned an invalid number of forward gradients (expected "
                    f"{len(metas)} but got {len(pushed)}){at_user_line()}"
                )
            for meta, t in zip(metas, pushed, strict=True):
                if t is not None and meta is not None and t.shape != meta[0]:
                    raise RuntimeError(
                        "Trying to set a forward gradient that has a different size than that of "
                        "the original Tensor, this is not supported. Tensor is of size "
                        f"{list(meta[0])} while the given forward gradient is of size "
                        f"{list(t.shape)}.{at_user_line()}"
                    )
            pairs = [
                (t, g)
                for t, g in zip(pushed, cotangents, strict=True)
                if t is not None and g is not None and t.requires_grad
            ]
            asked = [t for t in tangents if t is not None]
            if not pairs:
                return (None,) * len(args)
            found = api.grad(
                [t for t, _ in pairs], asked, [g for _, g in pairs], create_graph=True,
                allow_unused=True,
            )  # fmt: skip
        parts = iter(found)
        return tuple([next(parts) if each else None for each in is_tensor])

    return backward


def _fitting(cls: type[Function], a: Any, g: Any) -> Any:
    """What `backward` gives as the gradient of the input `a`, in its dtype and shape."""
    if g.dtype is not a.dtype:
        g = g.to(a.dtype)
    if g.shape == a.shape:
        return g
    try:
        return g.sum_to_size(a.shape)
    except (RuntimeError, IndexError):
        raise RuntimeError(
            f"Function {cls.__name__}Backward returned an invalid gradient: got {list(g.shape)} "
            f"but expected shape compatible with {list(a.shape)}"
        ) from None


def _output_vjp(g: Node, out: Node, token: Node, value: Node, index: int):
    _, cotangents = recording.contexts[token.attrs[0]]
    g = ops.conj(g)  # the user's convention
    cotangents[index] = cotangents[index] + g if index in cotangents else g
    return ops.constant(1, dtypes.float32), None


def _call_vjp(g: Node, out: Node, *args: Any):
    *_, place = args
    run, cotangents = recording.contexts[place]
    found = dict(cotangents)
    cotangents.clear()
    return tuple(None if g is None else ops.conj(g) for g in run(found, out))


def once_differentiable(backward: F) -> F:
    """Decorate `backward` so that its results can't be differentiated again."""

    @functools.wraps(backward)
    def once(ctx: Any, *grads: Any) -> Any:
        recorded = recording.is_grad_enabled()
        with recording.grad_mode(False):
            result = backward(ctx, *grads)
        sources = [g for g in grads if isinstance(g, Handle) and g.requires_grad]
        if not recorded or not sources:
            return result
        given = result if isinstance(result, tuple) else (result,)
        out = tuple(_Once.apply(g, *sources) if isinstance(g, Handle) else g for g in given)
        return out if isinstance(result, tuple) else out[0]

    return once  # type: ignore[return-value]


class _Once(Function):
    """The first input, whose derivative is an error."""

    @staticmethod
    def forward(ctx: FunctionCtx, value: Any, *sources: Any) -> Any:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: FunctionCtx, *grads: Any) -> Any:
        raise RuntimeError(
            "trying to differentiate twice a function that was marked with @once_differentiable"
        )


function_call = Op(
    "function_call",
    Kind.MARKER,
    params=("place",),
    infer=lambda *args: (Size(), dtypes.float32),
    vjp=_call_vjp,
    calls_user=True,
)
"""One call of an autograd.Function: it has no value, only a derivative."""

function_output = Op(
    "function_output",
    Kind.MARKER,
    params=("index",),
    infer=lambda token, value, index: (value.shape, value.dtype),
    vjp=_output_vjp,
)
"""An output of a function_call: the value of the second operand."""

ops.MARKERS[function_output] = 1
