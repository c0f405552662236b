"""The driver of this machine's GPUs: NVIDIA's, or AMD's where there is none of NVIDIA's.

Its library is loaded by name at run time, so no compiler and no toolkit is needed. `use` puts any
object with its C functions in its place. Tests run that way without a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import os
from importlib.util import find_spec
from typing import Any

from ..driver import FORKED, CudaError, Driver
from ..hip.driver import Amd
from .nvidia import Nvidia

_driver: Driver | None = None
_absence: str | None = None  # why there is no driver, after a search for it
_inherited = False  # the driver was started by a parent of this process


def use(library: Any, kind: type[Driver] = Nvidia) -> None:
    """Use `library` as a driver, by default NVIDIA's; None: load a real one when it is needed."""
    global _driver, _absence, _inherited
    _absence, _inherited = None, False
    _driver = None if library is None else kind(library)
    if _driver is not None:
        _driver.cuInit(0)


def get() -> Driver:
    """The driver; RuntimeError with the reason if there is none."""
    if _driver is None and _absence is None:
        _start()
    if _driver is None:
        raise RuntimeError(f"no CUDA device can be used: {_absence}")
    if _inherited:
        raise RuntimeError(FORKED)
    return _driver


def forked() -> bool:
    """Whether this process inherited a started driver from its parent. It must not use that."""
    return _inherited


def _in_child() -> None:
    global _inherited
    _inherited = _driver is not None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def _start() -> None:
    """Find a driver. If there is none, the reason is that of the first one which is installed."""
    global _driver, _absence
    absent = []
    for kind in (Nvidia, Amd):
        try:
            driver = kind(ctypes.CDLL(kind.library))
            driver.cuInit(0)
        except OSError:
            absent.append(f"the {kind.vendor} driver's {kind.library}")
        except AttributeError as error:
            _absence = _absence or f"the {kind.vendor} driver is older than {kind.oldest}: {error}"
        except CudaError as error:
            _absence = _absence or str(error)
        else:
            _driver, _absence = driver, None
            return
    _absence = _absence or f"neither {' nor '.join(absent)} was found"


@functools.cache
def _has_triton() -> bool:
    return find_spec("triton") is not None


def reason_against(compiling: bool = True) -> str | None:
    """Why no CUDA device can be used on this machine; None if one can. Raises nothing.

    compiling: whether kernels are to be compiled too.
    """
    if compiling and not _has_triton():
        return "Triton isn't installed, which compiles kernels: pip install 'tilewright[gpu]'"
    if _driver is None and _absence is None:
        _start()
    if _driver is None:
        return _absence
    return None if count() else f"the {_driver.vendor} driver shows no GPU"


def count() -> int:
    """The number of CUDA devices that the driver shows; 0 without a driver."""
    if _driver is None and _absence is None:
        _start()
    try:
        return _driver.number("cuDeviceGetCount") if _driver is not None else 0
    except CudaError:
        return 0
