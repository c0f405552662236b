"""torch.device, and the default device."""

from __future__ import annotations

import functools
import os
import re
import threading
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices

KINDS = ("cpu", "cuda", "interpret", "meta")
"""The kinds of devices that can hold tensors."""
_NAMED = {*KINDS, *"hip hpu ipu lazy maia mps mtia privateuseone vulkan xla xpu".split()}
"""PyTorch's other kinds: a program may name one before it asks whether it is there."""
_WRITTEN = re.compile(r"([a-z]+)(?::(0|[1-9]\d*))?")


class device:
    """A device by name: 'cpu', 'cuda', 'cuda:1', 'meta' (shapes without memory) or 'interpret' (GPU
    kernels, interpreted)."""

    __slots__ = ("_index", "_type")

    def __init__(
        self, type: device | str | int | None = None, index: int | None = None, **named: Any
    ):
        if type is None and set(named) == {"device"}:
            type, named = named["device"], {}
        self._type, self._index = _parts(type, index)
        if named:
            raise TypeError(
                f"device() got an unexpected keyword argument {next(iter(named))!r}{at_user_line()}"
            )

    @property
    def type(self) -> str:
        return self._type

    @property
    def index(self) -> int | None:
        return self._index

    def __str__(self) -> str:
        return self._type if self._index is None else f"{self._type}:{self._index}"

    def __repr__(self) -> str:
        index = "" if self._index is None else f", index={self._index}"
        return f"device(type='{self._type}'{index})"

    def __eq__(self, other: object) -> bool:
        """Whether `other` is the same device; as in PyTorch, a device equals no string."""
        return (
            isinstance(other, device) and self._type == other._type and self._index == other._index
        )

    def __hash__(self) -> int:
        return hash((self._type, self._index))

    def __reduce__(self) -> tuple[Any, ...]:
        return device, (str(self),)

    def __enter__(self) -> device:
        _stack.append(resolve(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.pop()


def _parts(type: Any, index: Any) -> tuple[str, int | None]:
    if isinstance(type, device) and index is None:
        return type._type, type._index
    if isinstance(type, int) and not isinstance(type, bool) and index is None:
        type, index = "cuda", type
    if not isinstance(type, str):
        raise TypeError(
            "device() expects a name such as 'cuda:1', a name and an index, or a device, got "
            f"{type!r}{at_user_line()}"
        )
    if index is not None and index < 0:
        raise RuntimeError(f"Device index must not be negative, got {index}{at_user_line()}")
    written = _WRITTEN.fullmatch(type)
    name, number = written.groups() if written else (type.partition(":")[0], None)
    if name not in _NAMED:
        raise RuntimeError(
            f"Expected one of {', '.join(KINDS)} device type at start of device string: "
            f"{type}{at_user_line()}"
        )
    if not written:
        raise RuntimeError(
            f"Invalid device string: {type!r}, expected a kind and a number{at_user_line()}"
        )
    if number is not None and index is not None:
        raise RuntimeError(
            "type (string) must not include an index because index was passed explicitly: "
            f"{type}{at_user_line()}"
        )
    return name, index if number is None else int(number)


@functools.cache
def named(name: str) -> device:
    """The device of a canonical name, as tensors store it."""
    return device(name)


_stack: list[str] = [os.environ.get("TW_DEVICE", "cpu")]


def set_default_device(device: device | str | int | None) -> None:
    """Set the device of tensors that are made without naming one; None is the CPU."""
    _stack[0] = "cpu" if device is None else resolve(device)


def get_default_device() -> device:
    return device(_stack[-1])


def resolve(name: device | str | int | None) -> str:
    """The canonical name of a device that exists; None is the default device."""
    text = _stack[-1] if name is None else str(name if isinstance(name, device) else device(name))
    if text == "cpu":
        return text
    if text.startswith("cuda"):
        text = text if ":" in text else f"cuda:{current_cuda()}"
        if not devices.has(text):
            check_cuda()
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: {text} of {devices.cuda_count()} CUDA "
                f"devices, which count from 0{at_user_line()}"
            )
        return text
    kind = text.partition(":")[0]
    if kind not in KINDS:
        raise RuntimeError(
            f"There is no {kind} device here: expected one of {', '.join(KINDS)}{at_user_line()}"
        )
    return kind  # there is one of each, whatever its number


_in_use = threading.local()


def current_cuda() -> int:
    """The number of the device that "cuda" means in this thread."""
    return getattr(_in_use, "number", 0)


def use_cuda(number: int) -> None:
    _in_use.number = number


def cuda_available() -> bool:
    """Whether a CUDA device can be used."""
    return devices.cuda_count() > 0


def check_cuda() -> None:
    """RuntimeError without a GPU. PyTorch's builds with CUDA have this class and these first words;
    its builds without CUDA, which no driver could help, raise an AssertionError."""
    if not cuda_available():
        from tilewright.runtime.cuda import driver

        raise RuntimeError(
            f"No CUDA GPUs are available: {driver.reason_against()}. Use device='cpu', or "
            f"'interpret' to run the GPU's kernels without one{at_user_line()}"
        )


@contextmanager
def default(name: Any):
    """Make tensors on `name` inside the block."""
    _stack.append(resolve(name))
    try:
        yield
    finally:
        _stack.pop()
