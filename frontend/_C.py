"""torch._C: those names of PyTorch's compiled part that packages touch."""

from __future__ import annotations

import enum
import sys as _sys
from contextlib import AbstractContextManager, ExitStack
from importlib import import_module as _import_module
from typing import Any

from ._tensor import Tensor as _Tensor
from .autograd.hooks import current_task as _current_graph_task_id
from .autograd.modes import is_grad_enabled as _grad_enabled
from .devices import cuda_available as _cuda_available
from .devices import device as _device
from .devices import get_default_device as _default_device
from .functions.generator import Generator
from .overriding import disabled as _disabled_torch_function_impl
from .overriding import state as _state
from .overriding import without_any as _without_any
from .overriding import without_classes as _without_classes

__all__ = ["Generator", "_current_graph_task_id", "_disabled_torch_function_impl"]

_has_cuda, _has_xpu, _has_mps = True, False, False  # the kinds of devices that we can be made for
DisableTorchFunction, DisableTorchFunctionSubclass = _without_any, _without_classes


class DispatchKey(enum.Flag):
    """Layers of PyTorch's dispatcher that packages name. There is no dispatcher here."""

    CPU, CUDA, Meta, CompositeImplicitAutograd, CompositeExplicitAutograd = 1, 2, 4, 8, 16
    Autograd, AutogradCPU, AutogradCUDA, ADInplaceOrView = 32, 64, 128, 256
    AutocastCPU, AutocastCUDA, AutocastXPU = 512, 1024, 2048


def DispatchKeySet(key: DispatchKey) -> DispatchKey:
    """A set of one layer; `|` joins sets."""
    return key


def _ExcludeDispatchKeyGuard(keys: DispatchKey) -> AbstractContextManager[Any]:
    """A block without some layers. Of them only autocast is there, for each kind of device."""
    from .amp import autocast

    block = ExitStack()
    for key, kind in ((DispatchKey.AutocastCPU, "cpu"), (DispatchKey.AutocastCUDA, "cuda")):
        if key in keys:
            block.enter_context(autocast(kind, enabled=False))
    return block


class ScriptMethod:
    """The kind of compiled methods of TorchScript's modules. Ours are Python's methods."""


class ScriptObject:
    """The kind of objects of classes in C++ that TorchScript holds. There are none here."""


def _get_default_device() -> str:
    """The kind of device of new tensors."""
    return _default_device().type


def _get_accelerator() -> _device:
    """The device that programs compute on: a GPU, or the CPU where there is none."""
    return _device("cuda" if _cuda_available() else "cpu")


def _is_torch_function_enabled() -> bool:
    return _state.classes


def _is_torch_function_mode_enabled() -> bool:
    return bool(_state.modes)


def _len_torch_function_stack() -> int:
    return len(_state.modes)


def _log_api_usage_once(event: str) -> None:
    """Nothing is reported."""


def _get_tracing_state() -> Any:
    """The scopes of the trace that torch.jit._get_trace_graph makes now; None outside of one."""
    graphs = _sys.modules.get(f"{__package__}.jit.graphs")
    return None if graphs is None else graphs.tracing_state()


def _is_tracing() -> bool:
    return False


def _is_grad_enabled() -> bool:
    return _grad_enabled()


def _get_privateuse1_backend_name() -> str:
    return "privateuseone"


def _are_functorch_transforms_active() -> bool:
    return False


def _mps_is_available() -> bool:
    return False


def _get_cudnn_enabled() -> bool:
    return False


# Switches of PyTorch's own fuser for TorchScript: there is none here.
def _jit_switch(enabled: Any = None) -> bool:
    return False


_jit_set_profiling_executor = _jit_set_profiling_mode = _jit_switch
_jit_override_can_fuse_on_gpu = _jit_override_can_fuse_on_cpu = _jit_switch
_jit_set_texpr_fuser_enabled = _jit_set_nvfuser_enabled = _jit_switch
_jit_can_fuse_on_gpu = _jit_can_fuse_on_cpu = _jit_switch


_TensorMeta = type(_Tensor)


class _nn:
    @staticmethod
    def _parse_to(*args: Any, **options: Any) -> tuple[Any, Any, bool, Any]:
        """(device, dtype, non_blocking, memory_format) of the arguments of `to`."""
        from tilewright.ir.dtype import DType

        from .recording import Handle

        place, dtype = options.get("device"), options.get("dtype")
        flags = [a for a in args if isinstance(a, bool)]
        for arg in args:
            if isinstance(arg, Handle):
                place, dtype = arg.device, arg.dtype
            elif isinstance(arg, DType):
                dtype = arg
            elif arg is not None and not isinstance(arg, bool):
                place = arg
        non_blocking = bool(flags[0]) if flags else bool(options.get("non_blocking", False))
        where = None if place is None else _device(place)
        return where, dtype, non_blocking, options.get("memory_format")


_ELSEWHERE = {
    **dict.fromkeys(("PyTorchFileReader", "PyTorchFileWriter"), "serialization.archive"),
    **dict.fromkeys(("Graph", "Node", "TensorType", "Value"), "jit.graphs"),
    "_LinAlgError": "linalg:LinAlgError",
    "_show_config": "__config__:show",
}
"""Names -> our module, and after a colon the name there if it is another one."""


def __getattr__(name: str) -> Any:
    if name in _ELSEWHERE:
        path, _, own = _ELSEWHERE[name].partition(":")
        return getattr(_import_module(f".{path}", __package__), own or name)
    from .paths import found

    return found(__name__, name)
