"""Traces: a model's call is recorded without running it."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.runtime import devices

from .. import recording
from ..functions import from_data
from ..recording import Handle, epoch

Sizes = Mapping[tuple[int, int], int]
"""New sizes by (number of the input, axis)."""


@dataclass(frozen=True)
class Recording:
    """One recording of the call.

    outputs: the nodes of its results, by name. sources: for each leaf the number of an input, the
    name of a parameter, or the digest of a value without a name. values: of the leaves. scalars:
    numbers that are inputs of the run.
    """

    outputs: dict[str, Node]
    sources: list[Any]
    values: list[np.ndarray]
    scalars: list[Any]


class Call:
    """A model and the arguments of one call.

    inputs: the tensors among the arguments, in order; names: of these in the model's signature.
    parameters: the model's parameters and buffers by the names of its state_dict. error: the
    exception class for a call that can't be recorded.
    """

    def __init__(
        self,
        model: Any,
        args: Any,
        kwargs: Mapping[str, Any] | None,
        error: type[Exception] = RuntimeError,
    ):
        self.error = error
        if not callable(model):
            raise TypeError(f"export: expected a Module or a function, got {type(model).__name__}")
        self.model = model
        self.args, self.kwargs = _split(args, kwargs)
        self.inputs: list[Any] = []
        self.names: list[str] = []
        for name, value in named_arguments(model, self.args, self.kwargs):
            for path, tensor in tensors_of(name, value):
                self.inputs.append(tensor)
                self.names.append(path)
        self.parameters = _parameters(model)

    def record(
        self, sizes: Sizes | None = None, stand_ins: Mapping[Any, Callable[..., Any]] | None = None
    ) -> Recording:
        """Record the call in eval mode, with inputs of other `sizes`. stand_ins: see
        `recording.standing_in`."""
        recording.flush()
        fresh = self.inputs_of(sizes or {})
        with (
            eval_mode(self.model),
            _unshared(self.parameters.values()),
            recording.grad_mode(False),
            recording.unevaluated(self._refuse),
            recording.standing_in(stand_ins or {}),
        ):
            for tensor in fresh:  # an unused input counts too
                recording.resolve(tensor)
            result = self.called(fresh)
            outputs = {name: recording.resolve(t) for name, t in tensors_of("output", result)}
            if not outputs:
                raise self.error(
                    f"the model returned no tensor but {type(result).__name__}: there is nothing "
                    "to export"
                )
            number = {id(_state(t)): i for i, t in enumerate(fresh)}
            named = self._state_names()
            sources, values = [], []
            for state, node, buffer in epoch.leaves:
                while node.op.kind is not Kind.LEAF:  # marked as a variable
                    node = node.operands[0]
                array = devices.get(node.device or "cpu").to_numpy(buffer)
                array = np.asarray(array).reshape(node.shape)
                source = number.get(id(state), named.get(id(state)))
                sources.append(_digest(array) if source is None else source)
                values.append(array)
            return Recording(outputs, sources, values, list(epoch.scalars))

    def inputs_of(self, sizes: Sizes) -> list[Any]:
        """The inputs with other `sizes`."""
        return [resized(t, i, sizes) for i, t in enumerate(self.inputs)]

    def called(self, inputs: Sequence[Any]) -> Any:
        """The model's result for other inputs."""
        replaced = dict(zip(map(id, self.inputs), inputs, strict=True))
        return self.model(*_replace(self.args, replaced), **_replace(self.kwargs, replaced))

    def _refuse(self) -> Exception:
        return self.error(
            "export: the model looks at a value while it is recorded (a branch on a tensor, "
            f".item(), print), so its graph depends on the data{at_user_line()}. Two ways out: "
            "compute both sides and choose with torch.where; or decide before the export, by a "
            "number or an attribute that isn't a tensor"
        )

    def _state_names(self) -> dict[int, str]:
        """The names of parameters and buffers by the id() of the state that holds their values."""
        out: dict[int, str] = {}
        for name, tensor in self.parameters.items():
            state = _state(tensor)
            # A view's name is only its own. Its storage belongs to another tensor and gets a
            # derived name.
            out.setdefault(id(state), name if tensor._chain is None else f"{name}.storage")
        return out


def _digest(array: np.ndarray) -> str:
    digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    return f"constant {array.dtype} {array.shape} {digest}"


def _split(args: Any, kwargs: Mapping[str, Any] | None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) from PyTorch's forms: a tensor, a tuple, or a tuple that ends with a dict of
    keywords."""
    if isinstance(args, Handle) or not isinstance(args, (tuple, list)):
        args = (args,)
    args = tuple(args)
    keywords = dict(kwargs or {})
    if args and isinstance(args[-1], dict) and kwargs is None:
        *rest, last = args
        if all(isinstance(k, str) for k in last):
            args, keywords = tuple(rest), dict(last)
    return args, keywords


def named_arguments(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    forward = getattr(model, "forward", model)
    try:
        bound = inspect.signature(forward).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(f"export: the arguments don't fit the model: {error}") from error
    except ValueError:  # a built-in without a signature
        yield from ((f"input_{i}", a) for i, a in enumerate(args))
        yield from kwargs.items()
        return
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            yield from ((f"{name}_{i}", v) for i, v in enumerate(value))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            yield from value.items()
        else:
            yield name, value


def tensors_of(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The tensors in nested tuples, lists and dicts, each with a name."""
    if isinstance(value, Handle):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for i, each in enumerate(value):
            yield from tensors_of(f"{name}_{i}", each)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from tensors_of(f"{name}_{key}", each)


def _replace(value: Any, tensors: Mapping[int, Any]) -> Any:
    if isinstance(value, Handle):
        return tensors[id(value)]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_replace(v, tensors) for v in value))
    if isinstance(value, (tuple, list)):
        return type(value)(_replace(v, tensors) for v in value)
    if isinstance(value, dict):
        return {k: _replace(v, tensors) for k, v in value.items()}
    return value


def resized(tensor: Any, number: int, sizes: Sizes) -> Any:
    """A tensor with the same values, repeated or cut where `sizes` has another size."""
    array = np.asarray(tensor.detach().cpu()._array()).reshape(tensor.shape)
    for axis, old in enumerate(array.shape):
        new = sizes.get((number, axis), old)
        if new != old:
            array = np.take(array, np.arange(new) % max(old, 1), axis=axis)
    return from_data.tensor(np.array(array), dtype=tensor.dtype, device=tensor.device)


def _parameters(model: Any) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for each in ("named_parameters", "named_buffers"):
        method: Callable[[], Any] | None = getattr(model, each, None)
        if method is not None:
            out.update(method())
    return out


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Keep the model in eval mode inside the block. Afterwards each module gets its own mode
    back."""
    modules = list(model.modules()) if hasattr(model, "modules") else []
    before = [m.training for m in modules]
    if modules:
        model.eval()
    try:
        yield
    finally:
        for module, training in zip(modules, before, strict=True):
            module.training = training


@contextmanager
def own_buffers(module: Any) -> Iterator[None]:
    """The block in which a module has copies of its buffers, which it may write to."""
    modules = module.modules() if hasattr(module, "modules") else ()
    before = [(m, dict(m._buffers)) for m in modules]
    copies: dict[int, Any] = {}
    with recording.grad_mode(False):
        for m, buffers in before:
            for name, value in buffers.items():
                if value is not None:
                    if id(value) not in copies:
                        copies[id(value)] = value.detach().clone()
                    m._buffers[name] = copies[id(value)]
    try:
        yield
    finally:
        for m, buffers in before:
            m._buffers.clear()
            m._buffers.update(buffers)


@contextmanager
def _unshared(tensors: Any) -> Iterator[None]:
    """Read parameters that share memory with NumPy in place, as nobody writes to them meanwhile."""
    kept = []
    for tensor in tensors:
        state = _state(tensor)
        if state._shared is not None:
            kept.append((tensor, state._shared))
            state._shared = None
    try:
        yield
    finally:
        for tensor, memory in kept:
            _state(tensor)._shared = memory


def _state(tensor: Any) -> Any:
    """The tensor or storage that holds a tensor's value."""
    return tensor if tensor._storage is None else tensor._storage
