"""torch._subclasses.fake_tensor: tensors without values, which tell a device that they aren't on.

A FakeTensor is a tensor on the device `meta`: calls on it give shapes, dtypes and derivatives, and
compute nothing. FakeTensorMode makes all tensors of a block such ones.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import Tensor, overriding
from ..devices import device as Device
from ..devices import get_default_device
from ..overrides import TorchFunctionMode
from ..recording import Handle
from ..utils._pytree import tree_flatten, tree_map

__all__ = [
    "DataDependentOutputException",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorDeviceMismatchError",
    "FakeTensorMode",
    "active_fake_mode",
    "detect_fake_mode",
    "is_fake",
    "unset_fake_temporarily",
]

_TOP = __package__.partition(".")[0]
_READS = frozenset(
    "item tolist __bool__ __int__ __float__ __index__ __complex__ equal allclose".split()
)
_OF_VALUES = frozenset("nonzero masked_select unique unique_consecutive argwhere bincount".split())
_ACROSS = frozenset("copy_ to __getitem__ __setitem__ index_put_ index_put __get__ __set__".split())
"""Functions that take tensors of several devices."""


class DataDependentOutputException(RuntimeError):
    """A value of a FakeTensor is read. func: the operator that would."""

    def __init__(self, func: str):
        super().__init__(f"{func}{at_user_line()}")
        self.func = func


class DynamicOutputShapeException(DataDependentOutputException):
    """The shape of a result depends on values of a FakeTensor."""


class FakeTensorDeviceMismatchError(RuntimeError):
    """FakeTensors of several devices are the operands of one call."""


_MOVES = ("to", "cpu", "cuda")


class _State(threading.local):
    within = 0  # how many calls deep: the library itself sees the device `meta`


_state = _State()
_META = Device("meta")


class FakeTensor(Tensor):
    """A tensor of a FakeTensorMode. fake_device: the device that it tells. fake_mode: the mode."""

    fake_device: Device
    fake_mode: FakeTensorMode

    def __new__(
        cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any, **options: Any
    ) -> FakeTensor:
        return fake_mode._fake(elem, Device(device))

    @property
    def device(self) -> Device:
        return _META if _state.within else self.fake_device

    is_meta = property(lambda self: bool(_state.within))
    is_cpu = property(lambda self: self.device.type == "cpu")
    is_cuda = property(lambda self: self.device.type == "cuda")

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        mode = detect_fake_mode((args, kwargs))
        if mode is None:
            return NotImplemented
        return mode.__torch_function__(func, types, args, kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        top = importlib.import_module(_TOP)
        with overriding.without_any():
            told = [f"size={tuple(self.shape)}"]
            is_usual = self.dtype is top.get_default_dtype()
            told += [] if is_usual else [f"dtype={self.dtype}"]
            made_by = None if self.is_leaf else self.grad_fn
            if made_by is not None:
                told.append(f"grad_fn=<{made_by.name()}>")
            elif self.requires_grad:
                told.append("requires_grad=True")
        where = self.fake_device
        told = [*([] if where.type == "cpu" else [f"device='{where}'"]), *told]
        shown = f"FakeTensor(..., {', '.join(told)})"
        return f"Parameter({shown})" if isinstance(self, _parameter()) else shown


class FakeTensorMode(TorchFunctionMode):
    """A block in which calls compute shapes alone: tensors that it makes are FakeTensors.

    allow_non_fake_inputs: other tensors stand for FakeTensors of their shapes, where they are an
    AssertionError else. shape_env: not used, as sizes are numbers.
    """

    def __init__(
        self,
        *,
        allow_fallback_kernels: bool = True,
        allow_non_fake_inputs: bool = False,
        shape_env: Any = None,
        static_shapes: bool | None = None,
        export: bool = False,
    ):
        self.allow_fallback_kernels = allow_fallback_kernels
        self.allow_non_fake_inputs = allow_non_fake_inputs
        self.shape_env, self.static_shapes, self.export = shape_env, static_shapes, export

    def from_tensor(self, tensor: Any, **options: Any) -> Any:
        """A FakeTensor of the shape, strides, dtype and device of a tensor."""
        if isinstance(tensor, FakeTensor):
            return tensor
        with overriding.without_any():
            made = _without_value(tensor)
            found = self._fake(made, tensor.device)
        if getattr(tensor, "_is_param", False) or isinstance(tensor, _parameter()):
            found._is_param = True
        return found

    def _fake(self, t: Any, device: Any) -> Any:
        with overriding.without_any(), _within():
            t = t if _on_meta(t) else _without_value(t)
            is_leaf = t.requires_grad and t.is_leaf
            made = (t.detach() if is_leaf else t).as_subclass(FakeTensor)
            if is_leaf:
                made.requires_grad_()
        made.fake_device, made.fake_mode = device, self
        return made

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        with overriding.without_any():
            args, kwargs, device = self._prepared(func, args, dict(kwargs or {}))
        with overriding.without_classes(), _within():
            called = Tensor.to if func.__name__ in _MOVES else func
            result = called(*args, **kwargs)
        if func == Tensor.data.__set__:  # type: ignore[attr-defined]
            args[0].fake_device = device

        def faked(x: Any) -> Any:
            return self._fake(x, device) if isinstance(x, Handle) and not _is_told(x) else x

        return tree_map(faked, result)

    def _prepared(
        self, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> tuple[Any, dict[str, Any], Any]:
        """A call's arguments on the device `meta`, and the device that its results are to tell."""
        name = func.__name__
        given = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Handle)]
        _refuse(name, given)
        if any(not _on_meta(t) for t in given):
            if not self.allow_non_fake_inputs:
                raise AssertionError(
                    "Please convert all Tensors to FakeTensors first or instantiate "
                    "FakeTensorMode with 'allow_non_fake_inputs'. Found in "
                    f"{overriding.shown(func)}{at_user_line()}"
                )
            args, kwargs = tree_map(
                lambda x: self.from_tensor(x) if isinstance(x, Handle) else x, (args, kwargs)
            )
        own = _device_of(name, given[-1:] if name == "__set__" else given)
        if name in _MOVES:
            args, kwargs, wanted = _moved(name, args, kwargs)
            if wanted is not None and wanted != own:
                kwargs["copy"] = True
        else:
            wanted = _asked(kwargs.pop("device", None))
            if wanted is not None or (name in overriding.MAKERS and own is None):
                kwargs["device"] = "meta"
        return args, kwargs, wanted or own or get_default_device()


def _is_told(t: Any) -> bool:
    return "fake_mode" in vars(t)


def _refuse(name: str, given: Sequence[Any]) -> None:
    """Raise an error for a call that needs values."""
    if not any(isinstance(t, FakeTensor) for t in given):
        return
    if name in _READS:
        raise DataDependentOutputException("aten._local_scalar_dense.default")
    if name in _OF_VALUES:
        raise DynamicOutputShapeException(f"aten.{name}.default")
    if name == "__getitem__" and any(t.dtype is dtypes.bool_ for t in given[1:]):
        raise DynamicOutputShapeException("aten.nonzero.default")
    if name in ("numpy", "__array__"):
        raise RuntimeError(f".numpy() is not supported for tensor subclasses.{at_user_line()}")


def _device_of(name: str, given: Sequence[Any]) -> Any:
    """The device that the operands tell; None if there are none."""
    fakes = [t for t in given if isinstance(t, FakeTensor)]
    found = dict.fromkeys(t.fake_device for t in fakes if t.dim())
    if len(found) > 1 and name not in _ACROSS:
        first, second, *_ = found
        raise FakeTensorDeviceMismatchError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{first} and {second}!{at_user_line()}"
        )
    return next(iter(found), fakes[0].fake_device if fakes else None)


def _moved(name: str, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any], Any]:
    """A call of `to`, `cpu` or `cuda` without the device that it asks for, and that device."""
    wanted, (t, *rest) = kwargs.pop("device", None), args
    if name == "to":
        for i, each in enumerate(rest):
            if isinstance(each, FakeTensor):
                wanted, rest[i] = each.fake_device, each.dtype
            elif isinstance(each, (str, Device)) or (isinstance(each, int) and i == 0):
                wanted = each
                rest.pop(i)
                break
        return (t, *rest), kwargs, _asked(wanted)
    wanted = name if wanted is None and not rest else (rest[0] if rest else wanted)
    return (t,), {}, _asked(wanted)


def _asked(wanted: Any) -> Any:
    """A device that a call asks for."""
    if wanted is None:
        return None
    found = Device("cuda", wanted) if isinstance(wanted, int) else Device(wanted)
    return Device("cuda", 0) if found.type == "cuda" and found.index is None else found


def _on_meta(t: Any) -> bool:
    with _within():
        return bool(Tensor.device.fget(t).type == "meta")  # type: ignore[attr-defined]


def _without_value(t: Any) -> Any:
    top = importlib.import_module(_TOP)
    made = top.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")
    return made.requires_grad_(t.requires_grad)


def _parameter() -> Any:
    return importlib.import_module(f"{_TOP}.nn").Parameter


@contextmanager
def _within() -> Iterator[None]:
    _state.within += 1
    try:
        yield
    finally:
        _state.within -= 1


def is_fake(x: object) -> bool:
    """Whether a value is a FakeTensor."""
    return isinstance(x, FakeTensor)


@contextmanager
def unset_fake_temporarily() -> Iterator[FakeTensorMode | None]:
    """A block in which no FakeTensorMode is active. Yields the one around it."""
    before, found = overriding.state.modes, active_fake_mode()
    overriding.state.modes = [m for m in before if not isinstance(m, FakeTensorMode)]
    try:
        yield found
    finally:
        overriding.state.modes = before


def active_fake_mode() -> FakeTensorMode | None:
    """The innermost FakeTensorMode around the call."""
    modes = [m for m in overriding.state.modes if isinstance(m, FakeTensorMode)]
    return modes[-1] if modes else None


def detect_fake_mode(inputs: Any = None) -> FakeTensorMode | None:
    """The FakeTensorMode of one of the values, or else that around the call."""
    for each in tree_flatten(inputs)[0]:
        if isinstance(each, FakeTensor):
            return each.fake_mode
    return active_fake_mode()
