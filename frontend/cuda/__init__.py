"""torch.cuda: the GPUs of this machine, their streams and their memory."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices as runtime
from tilewright.runtime.device import OutOfMemoryError

from .. import devices, recording
from ..functions import generator, typed
from . import amp, graphs, nvtx
from .graphs import (
    CUDAGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from .memory import (
    device_memory_used,
    empty_cache,
    get_allocator_backend,
    get_per_process_memory_fraction,
    max_memory_allocated,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_cached,
    memory_reserved,
    memory_snapshot,
    memory_stats,
    memory_stats_as_nested_dict,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from .monitoring import (
    clock_rate,
    list_gpu_processes,
    memory_usage,
    power_draw,
    temperature,
    utilization,
)
from .numbering import number_of
from .streams import (
    Event,
    ExternalStream,
    Stream,
    StreamContext,
    current_stream,
    default_stream,
    get_stream_from_external,
    set_stream,
    stream,
)

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike

__all__ = [
    "CUDAGraph",
    "DeferredCudaCallError",
    "Event",
    "ExternalStream",
    "OutOfMemoryError",
    "Stream",
    "StreamContext",
    "amp",
    "caching_allocator_enable",
    "can_device_access_peer",
    "clock_rate",
    "cudaStatus",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "device_memory_used",
    "device_of",
    "empty_cache",
    "get_allocator_backend",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "get_stream_from_external",
    "graph",
    "graph_pool_handle",
    "graphs",
    "has_half",
    "has_magma",
    "host_memory_stats",
    "host_memory_stats_as_nested_dict",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_current_stream_capturing",
    "is_initialized",
    "is_tf32_supported",
    "list_gpu_processes",
    "make_graphed_callables",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "memory_usage",
    "nvtx",
    "power_draw",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "temperature",
    "utilization",
]


def is_available() -> bool:
    """Whether a CUDA device can be used: the driver shows one, and Triton is installed."""
    return devices.cuda_available()


def device_count() -> int:
    """How many CUDA devices can be used."""
    return runtime.cuda_count()


def current_device() -> int:
    """The number of the device that "cuda" means."""
    devices.check_cuda()
    return devices.current_cuda()


def set_device(device: DeviceLike) -> None:
    """Let "cuda" mean another device in this thread; a negative number changes nothing."""
    number = number_of(device, exists=False)
    if number >= 0:
        devices.use_cuda(number_of(device))


class device:
    """Let "cuda" mean another device inside the block; None and negative numbers change nothing."""

    def __init__(self, device: DeviceLike | None):
        self.idx = -1 if device is None else number_of(device, exists=False)

    def __enter__(self) -> None:
        self.prev_idx = devices.current_cuda()
        set_device(self.idx)

    def __exit__(self, *exc: object) -> None:
        devices.use_cuda(self.prev_idx)


class device_of(device):
    """Let "cuda" mean the device of a tensor inside the block; a tensor on the CPU changes
    nothing."""

    def __init__(self, obj: Tensor):
        super().__init__(obj.device if obj.is_cuda else None)


def synchronize(device: DeviceLike | None = None) -> None:
    """Computes pending work, and waits for all work of a device."""
    found = runtime.get(f"cuda:{number_of(device)}")
    recording.flush()
    found.synchronize()


# ---- properties of a device ------------------------------------------------------------------


def get_device_properties(device: DeviceLike | None = None) -> Any:
    """name, major, minor, total_memory, multi_processor_count and more, as attributes."""
    from tilewright.runtime.cuda import context

    return context.properties(number_of(device))


def get_device_name(device: DeviceLike | None = None) -> str:
    return get_device_properties(device).name


def get_device_capability(device: DeviceLike | None = None) -> tuple[int, int]:
    """The compute capability, such as (9, 0)."""
    found = get_device_properties(device)
    return found.major, found.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the device computes with bfloat16."""
    return is_available() and (including_emulation or get_device_capability()[0] >= 8)


def is_tf32_supported() -> bool:
    """Whether the device multiplies float32 rounded to TF32."""
    if not is_available():
        return False
    found = get_device_properties()
    if found.gcnArchName.startswith("gfx"):
        return found.gcnArchName.startswith(("gfx94", "gfx95"))
    return found.major >= 8


def can_device_access_peer(device: DeviceLike, peer_device: DeviceLike) -> bool:
    """Whether one device reads the memory of another. Copies work between any two devices."""
    from tilewright.runtime.cuda import context

    return context.reaches(number_of(device), number_of(peer_device))


def get_arch_list() -> list[str]:
    """The architectures that kernels are compiled for: those of the devices at hand."""
    return sorted({get_device_properties(i).gcnArchName for i in range(device_count())})


# ---- random numbers: one stream serves all devices -------------------------------------------


def manual_seed(seed: int) -> None:
    """Begin the stream of `seed`, which all devices draw from. Does nothing without a GPU."""
    if is_available():
        generator.manual_seed(seed)


manual_seed_all = manual_seed


def seed() -> None:
    """Seed the stream of all devices from the operating system. Does nothing without a GPU."""
    if is_available():
        generator.seed()


seed_all = seed


def initial_seed() -> int:
    return generator.initial_seed()


def get_rng_state(device: DeviceLike | None = "cuda") -> Tensor:
    return generator.get_rng_state()


def set_rng_state(new_state: Tensor, device: DeviceLike | None = "cuda") -> None:
    generator.set_rng_state(new_state)


def get_rng_state_all() -> list[Any]:
    """The state of the one generator, repeated for each device."""
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Go on from states that `get_rng_state_all` returned."""
    for state in list(new_states)[:1]:
        set_rng_state(state)


# ---- more of PyTorch's names -----------------------------------------------------------------


def init() -> None:
    """Start the driver; an error if no device can be used."""
    devices.check_cuda()


def is_initialized() -> bool:
    """Whether a device is in use."""
    return any(name.startswith("cuda") for name in runtime.started())


def ipc_collect() -> None:
    """Do nothing: no memory is shared with other processes."""


has_half, has_magma = True, False
"""Whether float16 is there, and MAGMA's routines of linear algebra."""


class DeferredCudaCallError(Exception):
    """A call that waited for the first use of a GPU failed."""


class cudaStatus:
    """Codes of CUDA's runtime."""

    SUCCESS = 0
    ERROR_NOT_READY = 34


def get_gencode_flags() -> str:
    """The flags of PyTorch's compiler of kernels: none, as they are made where they run."""
    return ""


def host_memory_stats() -> dict[str, Any]:
    """Counters of pinned memory: none are kept."""
    return {}


def host_memory_stats_as_nested_dict() -> dict[str, Any]:
    """The same."""
    return {}


def caching_allocator_enable(value: bool = True) -> None:
    """Do nothing: memory that was freed is always kept for the next use."""


def __getattr__(name: str) -> Any:
    if name == "default_generators":  # the one generator, for each device
        return (generator.default_generator,) * device_count()
    if name == "_initialized":  # packages look before they ask a device for its state
        return is_initialized()
    if name in ("CudaError", "check_error", "cudart", "profiler"):
        profiler = importlib.import_module(".profiler", __name__)
        return profiler if name == "profiler" else getattr(profiler, name)
    if name in typed.ON_CUDA:
        return typed.ON_CUDA[name]
    raise AttributeError(f"torch.cuda.{name} is not implemented{at_user_line()}")
