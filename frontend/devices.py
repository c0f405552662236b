"""torch.device, and the default device."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices

KINDS = ("cpu", "cuda", "interpret")


class device:
    """A device by name: 'cpu', 'cuda', 'cuda:1' or 'interpret' (GPU kernels, interpreted)."""

    __slots__ = ("index", "type")
    index: int | None
    type: str

    def __init__(self, type: Any, index: int | None = None):
        if isinstance(type, device):
            type, index = type.type, type.index if index is None else index
        if isinstance(type, int):
            type, index = "cuda", type
        name, _, number = str(type).partition(":")
        if name not in KINDS or (number and not number.isdigit()):
            raise RuntimeError(
                f"Expected one of {', '.join(KINDS)} device type at start of device string: "
                f"{type}{at_user_line()}"
            )
        self.type = name
        self.index = int(number) if number else index

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type='{self.type}'{index})"

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            other = device(other)
        return isinstance(other, device) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __enter__(self) -> device:
        _stack.append(str(self))
        return self

    def __exit__(self, *exc: object) -> None:
        _stack.pop()


_stack: list[str] = [os.environ.get("TW_DEVICE", "cpu")]


def set_default_device(name: Any) -> None:
    """Where tensors are made when no device is named."""
    _stack[0] = resolve(name)


def get_default_device() -> device:
    return device(_stack[-1])


def resolve(name: Any) -> str:
    """The canonical name of a device that exists; None is the default device."""
    text = _stack[-1] if name is None else str(name if isinstance(name, device) else device(name))
    if text.startswith("cuda"):
        text = text if ":" in text else f"cuda:{current_cuda()}"
        if not devices.has(text):
            check_cuda()
            raise RuntimeError(
                f"CUDA error: invalid device ordinal: {text} of {devices.cuda_count()} CUDA "
                f"devices, which count from 0{at_user_line()}"
            )
        return text
    return "cpu" if text == "cpu:0" else text


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
    if not cuda_available():
        from tilewright.runtime.cuda import driver

        raise RuntimeError(
            f"No CUDA device is available: {driver.reason_against()}. Use device='cpu', or "
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
