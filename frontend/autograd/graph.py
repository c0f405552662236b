"""torch.autograd.graph: hooks on several gradients, and versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ..recording import Handle
from .grad_fn import AccumulateGrad, GradFn, GradientEdge
from .hooks import RemovableHandle, at_end, register

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]

Node = GradFn


def get_gradient_edge(tensor: Any) -> GradientEdge:
    """The edge of a tensor that requires a gradient; `torch.autograd.grad` takes it in the place of
    the tensor."""
    if not tensor.requires_grad:
        raise RuntimeError(
            "It is not possible to get the gradient edge for a Tensor that does not require "
            f"gradients{at_user_line()}"
        )
    node = AccumulateGrad(tensor) if tensor.is_leaf else tensor.grad_fn
    return GradientEdge(node, tensor.output_nr, tensor)


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Refused: a graph reads the values of a call from its memory, and saves no copies."""
    raise NotImplementedError(
        "autograd.graph.allow_mutation_on_saved_tensors: calls save no tensors, so none is copied "
        f"before it is overwritten. Clone the tensor that is written to{at_user_line()}"
    )
    yield


@contextmanager
def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> Iterator[None]:
    """A block like any other: gradients are computed in one order of work."""
    yield


set_override_stale_capture_stream = set_warn_on_accumulate_grad_stream_mismatch


class _Handles(RemovableHandle):
    """Takes the hooks of several tensors away."""

    def __init__(self, handles: Sequence[RemovableHandle]):
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()


def register_multi_grad_hook(
    tensors: Sequence[Any], fn: Callable[..., None], *, mode: str = "all"
) -> RemovableHandle:
    """Call fn(gradients) at the end of a backward pass that has reached one of `tensors`.

    The gradients are in the order of `tensors`, with None for a tensor that the pass hasn't
    reached. With mode="any", call fn(gradient) as soon as the first gradient is known. The result
    of `fn` is not used.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}{at_user_line()}")
    known: dict[int, Any] = {}  # the gradients known in the current pass

    def end(complete: bool) -> None:
        found = [known.get(i) for i in range(len(tensors))]
        known.clear()
        if complete and mode == "all":
            fn(found)

    def hook(place: int) -> Callable[[Any], None]:
        def see(grad: Any) -> None:
            is_first = not known
            known[place] = grad
            if is_first:
                at_end.append(end)
                if mode == "any":
                    fn(grad)

        return see

    return _Handles([register(t, hook(i)) for i, t in enumerate(tensors)])


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write in place to a tensor, or to each of several, that was made unseen."""
    for t in (tensor,) if isinstance(tensor, Handle) else tensor:
        (t._storage or t)._changes += 1


class saved_tensors_hooks:
    """Refused: calls are recorded and save nothing. A graph's plan decides what a backward pass
    reads."""

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        raise NotImplementedError(
            "autograd.graph.saved_tensors_hooks: calls are recorded and save no tensors. "
            f"torch.utils.checkpoint saves memory{at_user_line()}"
        )

    def __exit__(self, *exc: object) -> None:
        pass


@contextmanager
def save_on_cpu(pin_memory: bool = False, device_type: str = "cuda") -> Iterator[None]:
    """A block like any other: what its backward pass reads stays on its device."""
    yield


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block like any other: there are no such hooks."""
    yield
