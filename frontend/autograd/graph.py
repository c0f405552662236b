"""torch.autograd.graph: hooks on saved tensors and on several gradients, edges, versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

from tilewright.ir.location import at_user_line

from .. import recording
from ..recording import Handle
from .grad_fn import AccumulateGrad, GradFn, GradientEdge
from .hooks import Handles, RemovableHandle, at_end, register
from .saving import Hooks

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "region_activation_memory_budget",
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
    node = AccumulateGrad.at(tensor) if tensor.is_leaf else tensor.grad_fn
    return GradientEdge(node, tensor.output_nr, tensor)


@contextmanager
def set_warn_on_accumulate_grad_stream_mismatch(enabled: bool) -> Iterator[None]:
    """A block like any other: gradients are computed in one order of work."""
    yield


set_override_stale_capture_stream = set_warn_on_accumulate_grad_stream_mismatch


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

    return Handles([register(t, hook(i)) for i, t in enumerate(tensors)])


def region_activation_memory_budget(budget: float) -> AbstractContextManager[None]:
    """Refused, as in PyTorch outside of a compiled region: nothing is traced that could be cut.
    `torch.utils.checkpoint` computes values again in the backward pass."""
    raise RuntimeError(
        "torch.autograd.graph.region_activation_memory_budget can only be used inside a "
        f"torch.compile region; it has no effect in eager mode.{at_user_line()}"
    )


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Count a write in place to a tensor, or to each of several, that was made unseen."""
    for t in (tensor,) if isinstance(tensor, Handle) else tensor:
        (t._storage or t)._changes += 1


class saved_tensors_hooks:
    """A block in which what calls save for a backward pass goes through hooks.

    pack_hook(tensor) is called when a call saves `tensor`: it returns anything, which is kept in
    its place. unpack_hook gets it in the backward pass, and returns the tensor again, of the same
    shape, dtype and device. Of nested blocks the innermost has the say.

    A call saves what its own derivative reads here, which may be another of its values than in
    PyTorch, such as the operand in place of the result.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if _Refusal.texts:
            raise RuntimeError(f"{_Refusal.texts[-1]}{at_user_line()}")
        outer = recording.clock.saving
        recording.set_saving(Hooks(self.pack_hook, self.unpack_hook, outer))

    def __exit__(self, *exc: object) -> None:
        entered: Any = recording.clock.saving
        recording.set_saving(None if entered is None else entered.outer)


class save_on_cpu(saved_tensors_hooks):
    """A block in which what calls save waits on the CPU for its backward pass.

    pin_memory: whether it waits in pinned memory, from which copies are faster.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(t: Any) -> tuple[Any, Any]:
            kept = t.cpu()
            return t.device, kept.pin_memory() if pin_memory else kept

        def unpack(kept: tuple[Any, Any]) -> Any:
            device, t = kept
            return t.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


class _Refusal:
    texts: ClassVar[list[str]] = []  # of the blocks that are open


@contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """A block in which such hooks are an error with this text."""
    if recording.clock.saving is not None:
        raise RuntimeError(error_message)
    _Refusal.texts.append(error_message)
    try:
        yield
    finally:
        _Refusal.texts.pop()


class _Copies(saved_tensors_hooks):
    """Keeps copies, which writes to the tensors don't reach."""

    is_open = False

    def __init__(self) -> None:
        super().__init__(lambda t: t.detach().clone(), lambda kept: kept)

    def clear(self) -> None:
        """Nothing to forget: each call has copies of its own."""


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[_Copies]:
    """A block in which a tensor may be written to although a backward pass reads it: the pass reads
    what the tensor was. A copy costs nothing unless there is such a write."""
    if _Copies.is_open:
        raise RuntimeError(
            f"allow_mutation_on_saved_tensors contexts cannot be nested{at_user_line()}"
        )
    copies = _Copies()
    _Copies.is_open = True
    try:
        with copies:
            yield copies
    finally:
        _Copies.is_open = False
