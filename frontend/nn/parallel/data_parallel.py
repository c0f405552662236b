"""DataParallel on one device, and the functions that it is made of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tilewright.ir.location import at_user_line

from ..._tensor import Tensor
from ...devices import device as Device
from ..module import Module

if TYPE_CHECKING:
    from ...types import DeviceLike

T = TypeVar("T", bound=Module)


def _only(devices: Sequence[DeviceLike]) -> Device:
    """The one device of a list."""
    found = list(dict.fromkeys(str(Device(d)) for d in devices))
    if len(found) != 1:
        raise NotImplementedError(
            f"expected one device, got {found}: a model runs on one device at a time"
            f"{at_user_line()}"
        )
    return Device(found[0])


def _moved(value: Any, place: Callable[[Tensor], Tensor]) -> Any:
    """`value` with the tensors in it replaced by place(tensor)."""
    if isinstance(value, Tensor):
        return place(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*[_moved(v, place) for v in value])
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(v, place) for v in value)
    if isinstance(value, Mapping):
        return type(value)((k, _moved(v, place)) for k, v in value.items())  # type: ignore[call-arg]
    return value


def scatter(inputs: Any, target_gpus: Sequence[DeviceLike], dim: int = 0) -> list[Any]:
    """The part of `inputs` for each device: there is one, which gets all."""
    device = _only(target_gpus)
    return [_moved(inputs, lambda t: t.to(device))]


def scatter_kwargs(
    inputs: Any, kwargs: dict[str, Any] | None, target_gpus: Sequence[DeviceLike], dim: int = 0
) -> tuple[tuple[Any, ...], tuple[dict[str, Any], ...]]:
    """The parts of positional and keyword arguments for each device: there is one."""
    parts = scatter((inputs, kwargs or {}), target_gpus, dim)
    return tuple(a for a, _ in parts), tuple(k for _, k in parts)


def gather(outputs: Sequence[Any], target_device: DeviceLike, dim: int = 0) -> Any:
    """The outputs of all devices, of which there is one, on `target_device`."""
    (only,) = outputs
    device = Device("cpu") if target_device == -1 else Device(target_device)
    return _moved(only, lambda t: t.to(device))


def replicate(network: T, devices: Sequence[DeviceLike], detach: bool = False) -> list[T]:
    """A copy of the network for each device. There is one, which may have the network itself."""
    _only(devices)
    return [network]


def parallel_apply(
    modules: Sequence[Module],
    inputs: Sequence[Any],
    kwargs_tup: Sequence[dict[str, Any]] | None = None,
    devices: Sequence[DeviceLike | None] | None = None,
) -> list[Any]:
    """The output of each module for its own inputs."""
    if len(modules) != len(inputs):
        raise AssertionError(
            f"The number of modules {len(modules)} is not equal to the number of inputs "
            f"{len(inputs)}"
        )
    options = kwargs_tup or [{}] * len(modules)
    return [
        module(*(given if isinstance(given, (list, tuple)) else (given,)), **more)
        for module, given, more in zip(modules, inputs, options, strict=True)
    ]


def get_a_var(obj: Any) -> Tensor | None:
    """The first tensor in an object of tuples, lists and dicts."""
    if isinstance(obj, Tensor):
        return obj
    parts = obj.values() if isinstance(obj, Mapping) else obj
    if isinstance(parts, (list, tuple)) or isinstance(obj, Mapping):
        return next((found for each in parts if (found := get_a_var(each)) is not None), None)
    return None


class DataParallel(Module):
    """A model on the one device there is: inputs go there, and the model is called once.

    device_ids: at most one device; none for a model on the CPU. The parameters have names that
    begin with 'module.', as in PyTorch.
    """

    def __init__(
        self,
        module: Module,
        device_ids: Sequence[DeviceLike] | None = None,
        output_device: DeviceLike | None = None,
        dim: int = 0,
    ) -> None:
        super().__init__()
        self.dim = dim
        self.module = module
        if device_ids is None:
            used = {str(p.device) for p in module.parameters() if p.device.type == "cuda"}
            device_ids = sorted(used)
        self.device_ids = [_only(device_ids)] if device_ids else []
        self.output_device = output_device
        if self.device_ids:
            self.output_device = self.device_ids[0] if output_device is None else output_device
            module.to(self.device_ids[0])

    def replicate(self, module: T, device_ids: Sequence[DeviceLike]) -> list[T]:
        return replicate(module, device_ids)

    def scatter(
        self, inputs: Any, kwargs: dict[str, Any] | None, device_ids: Sequence[DeviceLike]
    ) -> tuple[Any, Any]:
        return scatter_kwargs(inputs, kwargs, device_ids, self.dim)

    def parallel_apply(
        self, replicas: Sequence[Module], inputs: Sequence[Any], kwargs: Any
    ) -> list[Any]:
        return parallel_apply(replicas, inputs, kwargs, self.device_ids[: len(replicas)])

    def gather(self, outputs: Sequence[Any], output_device: DeviceLike) -> Any:
        return gather(outputs, output_device, self.dim)

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        if not self.device_ids:
            return self.module(*inputs, **kwargs)
        inputs, kwargs = scatter((inputs, kwargs), self.device_ids, self.dim)[0]
        assert self.output_device is not None
        return gather([self.module(*inputs, **kwargs)], self.output_device, self.dim)


def data_parallel(
    module: Module,
    inputs: Any,
    device_ids: Sequence[DeviceLike] | None = None,
    output_device: DeviceLike | None = None,
    dim: int = 0,
    module_kwargs: dict[str, Any] | None = None,
) -> Any:
    """The output of DataParallel(module) for `inputs`, one tensor or a tuple."""
    given = inputs if isinstance(inputs, tuple) else () if inputs is None else (inputs,)
    whole = DataParallel(module, device_ids, output_device, dim)
    return whole(*given, **(module_kwargs or {}))
