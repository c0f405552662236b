"""custom_op and triton_op: ops made of the user's functions, with their own derivatives."""

from __future__ import annotations

import importlib
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import recording
from ..autograd.function import Function, FunctionCtx
from ..autograd.graph import increment_version
from ..recording import Handle
from .schemas import Schema, kinds_of_arguments, parsed, refused, written
from .tags import Tag, listed

_defined: dict[str, CustomOpDef] = {}


def defined(name: str) -> CustomOpDef | None:
    """The op of a full name, `namespace::name`, if it is defined."""
    return _defined.get(name)


def forget(name: str) -> None:
    """Take the definition of an op away."""
    _defined.pop(name, None)


class CustomOpDef:
    """An op of the user's, called like the function that it was made of.

    A call runs the function, whose recorded ops are deferred as usual. The op's derivative is the
    one given to `register_autograd`, never that of the function's ops.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        mutates_args: str | Iterable[str],
        device_types: str | Sequence[str] | None = None,
        *,
        on_arrays: bool = False,
        tags: Any = None,
        schema: Schema | None = None,
    ):
        """on_arrays: whether the function may look at its inputs' values through `numpy()`.
        schema: declares the arguments in place of the function."""
        self.tags = listed(tags, Tag.pt2_compliant_tag)
        self._qualname = _checked_name(name)
        self.__name__ = name.split("::")[1]
        self.__doc__ = function.__doc__
        self._signature = inspect.signature(function) if schema is None else schema.signature
        kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = self._signature.parameters.values()
        self._positional = tuple(p.name for p in parameters if p.kind in kinds)
        self._mutated = self._mutates(mutates_args)
        if schema is not None and schema.mutated != self._mutated:
            raise ValueError(
                f"{name}: mutates_args={mutates_args!r}, but the schema {schema.text} says that it "
                f"writes to {', '.join(sorted(schema.mutated)) or 'nothing'}. Please make these "
                f"consistent{at_user_line()}"
            )
        self._declared = schema
        text = written(function, self._mutated) if schema is None else schema.text
        self._kinds = kinds_of_arguments(text)
        self._may_alias = False  # whether an output may be an input, or a view of one
        self._on_arrays = on_arrays
        self._kernels: dict[str | None, Callable[..., Any]] = {}
        self.register_kernel(device_types, function)
        self._fake: Callable[..., Any] | None = None
        self._whole: Callable[..., Any] | None = None  # differentiated through its own ops
        self._casting: dict[str, Callable[..., Any]] = {}  # by device, where autocast is on
        self._backward: Callable[..., Any] | None = None
        self._setup_context: Callable[..., Any] | None = None
        shown = f"GeneratedBackwardFor_{name.replace('::', '_')}_default"
        self._autograd: type[Function] = type(shown, (_CustomFunction,), {})
        _defined[name] = self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    @property
    def _schema(self) -> str:
        """The arguments and results, as PyTorch writes them."""
        if self._declared is not None:
            return self._declared.text[len(self._declared.name) :]
        return written(next(iter(self._kernels.values())), self._mutated)

    @property
    def _opoverload(self) -> Any:
        """The op as torch.ops has it."""
        ops = importlib.import_module("..ops", __package__)
        namespace, _, name = self._qualname.partition("::")
        return getattr(getattr(ops, namespace), name).default

    def _mutates(self, names: str | Iterable[str]) -> frozenset[str]:
        parameters = self._signature.parameters
        if names == "unknown":
            return frozenset(parameters)
        if isinstance(names, str):
            raise ValueError(
                f"mutates_args must either be a sequence of the names of the arguments that are "
                f'mutated or the string "unknown", got {names!r}{at_user_line()}'
            )
        unknown = [n for n in names if n not in parameters]
        if unknown:
            raise ValueError(
                f"{self._qualname}: mutates_args names {', '.join(unknown)}, and the arguments are "
                f"{', '.join(parameters)}{at_user_line()}"
            )
        return frozenset(names)

    # ---- registration

    def register_kernel(
        self, device_types: str | Sequence[str] | None, func: Callable[..., Any] | None = None, /
    ) -> Callable[..., Any]:
        """Compute the op by `func` on some devices ("cpu", "cuda"), or on all (None)."""

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            for kind in _listed(device_types):
                self._kernels[kind] = function
            return function

        return register if func is None else register(func)

    def register_fake(self, func: Callable[..., Any], /) -> Callable[..., Any]:
        """Compute the op on the meta device by `func`. Elsewhere shapes come from the op's own
        results."""
        self._fake = func
        return func

    def register_autograd(
        self,
        backward: Callable[..., Any],
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> None:
        """Set the derivative of the op.

        backward(ctx, *grads) returns a gradient or None for each positional argument, and a list of
        them for a list of tensors. setup_context(ctx, inputs, output) runs after the op and stores
        in `ctx` the values that backward needs. For ops with keyword-only arguments it is called as
        setup_context(ctx, inputs, keyword_only_inputs, output).
        """
        if self._mutated:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self._qualname}, "
                f"which mutates {', '.join(sorted(self._mutated))}. Please create a functional "
                f"operator and register an autograd formula for that{at_user_line()}"
            )
        self._backward, self._setup_context = backward, setup_context

    def register_vmap(self, func: Callable[..., Any] | None = None, /) -> Callable[..., Any]:
        """Compute the op for all examples of a `torch.vmap` by `func`.

        func(info, in_dims, *args, **kwargs) gets the op's arguments with their dimensions of
        examples, and returns (outputs, the dimensions of the examples in them). A decorator without
        `func`. Otherwise vmap goes through what the op's function computes.
        """

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            def vmap(info: Any, in_dims: Any, call: _Call, *tensors: Any) -> Any:
                dims = iter(in_dims[1:])
                places = tuple(_exchanged(v, dims, None) for v in call.inputs)
                each = iter(tensors)
                given = tuple(_exchanged(v, each, v) for v in call.inputs)
                return function(info, places, *given, **call.keywords)

            self._autograd.vmap = staticmethod(vmap)  # type: ignore[method-assign]
            return function

        return register if func is None else register(func)

    # ---- calls

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        inputs, keywords = self._bound(args, kwargs)
        if self._casting and recording.clock.casts is not None:
            kernel = self._kernel_that_casts((*inputs, *keywords.values()))
            if kernel is not None:
                return kernel(*inputs, **keywords)
        if self._whole is not None:
            return self._whole(*inputs, **keywords)
        call = _Call(self, inputs, keywords)
        result = self._autograd.apply(call, *call.tensors)
        return list(result) if call.gives_list else result

    def _bound(
        self, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """All (positional, keyword-only) arguments, with defaults filled in."""
        if kwargs or not len(args) == len(self._positional) == len(self._signature.parameters):
            try:
                bound = self._signature.bind(*args, **kwargs)
            except TypeError as error:
                raise RuntimeError(f"{self._qualname}(): {error}{at_user_line()}") from None
            bound.apply_defaults()
            args, kwargs = bound.args, bound.kwargs
        for place, (name, value) in enumerate([*zip(self._positional, args), *kwargs.items()]):
            kind = self._kinds.get(name, "")
            if refused(value, kind):
                raise RuntimeError(
                    f"{self._qualname}() Expected a value of type '{kind}' for argument "
                    f"'{name}' but instead found type '{type(value).__name__}'.\n"
                    f"Position: {place}\nValue: {value!r}\n"
                    f"Declaration: {self._qualname}{self._schema}{at_user_line()}"
                )
        return args, kwargs

    def _kernel_that_casts(self, values: Iterable[Any]) -> Callable[..., Any] | None:
        """What an op with tensors of these is replaced by where autocast is on."""
        kind = next((t.device.type for t in _tensors(values)), "cpu")
        casts = recording.clock.casts
        return self._casting.get(kind) if casts is not None and casts.dtype(kind) else None

    def _kernel_for(self, tensors: Sequence[Any]) -> Callable[..., Any]:
        kind = tensors[0].device.type if tensors else None
        by_kind = self._kernels.get(kind) or (self._fake if kind == "meta" else None)
        function = by_kind or self._kernels.get(None)
        if function is None:
            kinds = ", ".join(str(k) for k in self._kernels) or "no device"
            raise NotImplementedError(
                f"{self._qualname} has a kernel for {kinds}, and none for {kind}{at_user_line()}"
            )
        return function


class _Call:
    """One call of an op. tensors: all tensors among its arguments, also those in lists."""

    def __init__(self, op: CustomOpDef, inputs: tuple[Any, ...], keywords: dict[str, Any]):
        self.op, self.inputs, self.keywords = op, inputs, keywords
        self.tensors = tuple(_tensors(inputs))
        self.gives_list = False

    def run(self) -> Any:
        """The op's outputs, as one tensor or a tuple."""
        op, args, keywords = self.op, self.inputs, self.keywords
        named = [*zip(op._positional, args), *keywords.items()]
        given = [(name, t, recording.version(t)) for name, v in named for t in _tensors((v,))]
        everything = [t for _, t, _ in given]
        if op._on_arrays:
            args = tuple(map(_readable, args))
            keywords = {n: _readable(v) for n, v in keywords.items()}
        output = op._kernel_for(everything)(*args, **keywords)
        for name, t, version in given:
            if name in op._mutated:
                if recording.version(t) == version:  # it was written to unseen
                    increment_version(t)
            elif recording.version(t) != version:
                raise RuntimeError(
                    f"{op._qualname} writes to its argument {name!r}, which mutates_args doesn't "
                    f"name{at_user_line()}"
                )
        self.gives_list = isinstance(output, list)
        outputs = tuple(output) if self.gives_list else output
        if not op._may_alias:
            self._check_aliases(outputs, everything)
        return outputs

    def _check_aliases(self, output: Any, given: Sequence[Any]) -> None:
        taken = {id(t._storage or t) for t in given}
        for t in _tensors((output,)):
            if id(t._storage or t) in taken:
                raise RuntimeError(
                    f"{self.op._qualname}: The output of this custom operator (1) must not also be "
                    "an input to this custom operator and (2) may not alias any inputs to this "
                    "custom operator or other returns. The most common way to trigger this error "
                    "is if we have y = custom_op(x) and y and x are the same Tensor. Please "
                    f"instead return a clone of the offending output tensor(s){at_user_line()}"
                )
            taken.add(id(t._storage or t))


class _CustomFunction(Function):
    """A call as autograd sees it: its first argument is the _Call, the others are tensors."""

    @staticmethod
    def forward(call: _Call, *tensors: Any) -> Any:
        return call.run()

    @staticmethod
    def setup_context(ctx: FunctionCtx, inputs: tuple[Any, ...], output: Any) -> None:
        call = inputs[0]
        ctx.call = call  # type: ignore[attr-defined]
        if not recording.is_grad_enabled() and not any(ctx.needs_input_grad):
            return
        setup = call.op._setup_context
        if setup is None:
            return
        given = list(output) if call.gives_list else output
        needed = ctx.needs_input_grad
        ctx.needs_input_grad = tuple(_needs(v) for v in call.inputs)
        named = {"keyword_only_inputs": call.keywords} if call.keywords else {}
        setup(ctx=ctx, inputs=call.inputs, output=given, **named)
        ctx.needs_input_grad = needed

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        call = ctx.call
        op = call.op
        if op._backward is None:
            raise RuntimeError(
                f"Trying to backward through {op._qualname.replace('::', '.')}.default but no "
                "autograd formula was registered. Please use register_autograd to add one."
            )
        ctx.needs_input_grad = tuple(_needs(v) for v in call.inputs)
        given = op._backward(ctx, list(grads)) if call.gives_list else op._backward(ctx, *grads)
        found = given if isinstance(given, tuple) else (given,)
        if len(found) != len(call.inputs):
            raise RuntimeError(
                f"{op._qualname}: backward returned an incorrect number of gradients (expected "
                f"{len(call.inputs)}, got {len(found)})"
            )
        return None, *_flattened(op, call.inputs, found)


def _flattened(op: CustomOpDef, inputs: Sequence[Any], grads: Sequence[Any]) -> Iterator[Any]:
    """The gradient of each tensor among `inputs`, also of those in lists."""
    for value, g in zip(inputs, grads, strict=True):
        count = len([*_tensors((value,))])
        if isinstance(value, Handle):
            yield g
        elif count and g is not None:
            if not isinstance(g, (list, tuple)) or len(g) != len(value):
                raise RuntimeError(
                    f"{op._qualname}: backward returned {type(g).__name__} for a list of "
                    f"{len(value)} tensors: expected a list of as many gradients"
                )
            yield from (each for t, each in zip(value, g) if isinstance(t, Handle))
        else:
            yield from [None] * count


def _exchanged(value: Any, given: Iterator[Any], other: Any) -> Any:
    """`value` with the next of `given` in the place of each tensor, or `other` if it has none."""
    if isinstance(value, Handle):
        return next(given)
    if isinstance(value, (list, tuple)):
        return [_exchanged(v, given, other) for v in value]
    return other


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, Handle):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)


def _needs(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_needs(v) for v in value]
    return isinstance(value, Handle) and value.requires_grad


def _readable(value: Any) -> Any:
    """The argument with its tensors detached, so that the function may pass them to NumPy."""
    if isinstance(value, (list, tuple)):
        return type(value)(map(_readable, value))
    return value.detach() if isinstance(value, Handle) and value.requires_grad else value


def _checked_name(name: str) -> str:
    if name.count("::") != 1 or name.startswith("::") or name.endswith("::"):
        raise ValueError(
            f'expected a name of the form "namespace::name", got {name!r}{at_user_line()}'
        )
    return name


def _listed(device_types: str | Sequence[str] | None) -> Sequence[str | None]:
    """The kinds of devices that are meant, by their names or PyTorch's dispatch keys."""
    if device_types is None or isinstance(device_types, str):
        device_types = (device_types,)  # type: ignore[assignment]
    return [KERNELS.get(kind, kind) for kind in device_types]  # type: ignore[union-attr]


KERNELS = {"CPU": "cpu", "CUDA": "cuda", "CompositeExplicitAutograd": None, "default": None}
"""PyTorch's dispatch keys for kernels -> the kind of devices; None stands for all."""


def custom_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    device_types: str | Sequence[str] | None = None,
    schema: str | None = None,
    tags: Any = None,
) -> Any:
    """Make an op of a Python function, which may use its inputs' values in any way.

    name: "namespace::name". mutates_args: the names of the arguments that it writes to, or
        "unknown". device_types: the devices that it supports. Without `fn` this is a decorator.
    schema: declares the arguments, as "(Tensor x, float by=1.0) -> Tensor", in place of the
        function's own signature. It must name those written to as well.
    tags: what PyTorch's compiler is told of an op (`torch.Tag`). They change nothing here.
    """
    declared = _declaration(schema)

    def define(function: Callable[..., Any]) -> CustomOpDef:
        return CustomOpDef(
            name, function, mutates_args, device_types, on_arrays=True, tags=tags, schema=declared
        )

    return define if fn is None else define(fn)


def triton_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    mutates_args: str | Iterable[str],
    schema: str | None = None,
) -> Any:
    """Make an op of a function that launches Triton kernels through `wrap_triton`.

    Unlike with `custom_op`, a call computes nothing: its launches are deferred with the rest of the
    graph.
    """
    declared = _declaration(schema)

    def define(function: Callable[..., Any]) -> CustomOpDef:
        return CustomOpDef(name, function, mutates_args, schema=declared)

    return define if fn is None else define(fn)


def _declaration(schema: str | None) -> Schema | None:
    return None if schema is None else parsed(schema)


def _named(op: str | CustomOpDef) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _defined:
        raise ValueError(f"there is no custom op {op!r}{at_user_line()}")
    return _defined[op]


def register_autograd(
    op: str | CustomOpDef,
    backward: Callable[..., Any],
    /,
    *,
    setup_context: Callable[..., Any] | None = None,
    lib: Any = None,
) -> None:
    """See `CustomOpDef.register_autograd`; `op` may be its name."""
    _named(op).register_autograd(backward, setup_context=setup_context)


def register_fake(
    op: str | CustomOpDef, func: Callable[..., Any] | None = None, /, **options: Any
) -> Any:
    """See `CustomOpDef.register_fake`; a decorator without `func`. An op may be defined later.
    options: PyTorch's `lib`, `allow_override`; they change nothing."""
    if isinstance(op, str) and op not in _defined:
        return func if func is not None else lambda function: function
    found = _named(op)
    return found.register_fake if func is None else found.register_fake(func)


def register_kernel(
    op: str | CustomOpDef,
    device_types: str | Sequence[str] | None,
    func: Callable[..., Any] | None = None,
    /,
    *,
    lib: Any = None,
) -> Any:
    """See `CustomOpDef.register_kernel`."""
    return _named(op).register_kernel(device_types, func)


def register_vmap(
    op: str | CustomOpDef, func: Callable[..., Any] | None = None, /, *, lib: Any = None
) -> Any:
    """See `CustomOpDef.register_vmap`."""
    return _named(op).register_vmap(func)


def impl_abstract(qualname: str, func: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Deprecated: `register_fake`."""
    warnings.warn(
        "torch.library.impl_abstract was renamed to torch.library.register_fake. Please use that "
        "instead; we will remove torch.library.impl_abstract in a future version of PyTorch.",
        FutureWarning,
        stacklevel=2,
    )
    return register_fake(qualname, func)
