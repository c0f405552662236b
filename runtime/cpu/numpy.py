"""The CPU as a device: kernels are NumPy programs."""

from __future__ import annotations

import linecache
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.codegen.target import NUMPY

from .. import debug
from ..device import Launch
from ..host import HostDevice

if TYPE_CHECKING:
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.numpy import Emitted
    from tilewright.codegen.triton import Emitted as Triton

_made: dict[str, Callable[..., Launch]] = {}


def _function(code: str, source: str, name: str) -> Callable[..., Launch]:
    """The `make` of an emitted module. Modules with equal code are compiled once."""
    make = _made.get(code)
    if make is None:
        file = f"<tilewright {name} {len(_made)}>"
        # Tracebacks and debuggers look here for the text.
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        scope: dict[str, Any] = {"__name__": f"tilewright.generated.{name}"}
        exec(compile(source, file, "exec"), scope)
        make = _made[code] = scope["make"]
    return make


class NumpyDevice(HostDevice):
    """Host memory: a buffer is a C-contiguous array."""

    name = "cpu"
    target = NUMPY

    def compile(self, kernel: Kernel | Bundle) -> Launch:
        from tilewright.codegen.kernel import Bundle

        if isinstance(kernel, Bundle):
            return _bundle(kernel, [self.compile(member) for member in kernel.members])
        emitted = _emit(kernel)
        launch = _function(emitted.code, emitted.source, emitted.name)(**emitted.arguments)
        return _retyped(launch, kernel)

    def bind(self, emitted: Triton) -> Launch:
        from ..interpret.launch import bind

        debug.say(f"{emitted.name} runs in Triton's interpreter")
        return bind(emitted)

    def source(self, kernel: Kernel | Bundle) -> str:
        from tilewright.codegen.kernel import Bundle

        member = kernel.members[0] if isinstance(kernel, Bundle) else kernel
        return _emit(member).source


def _retyped(launch: Launch, kernel: Kernel) -> Launch:
    """A launch over buffers of the kernel's types: to it complex ones may be pairs of real ones."""
    types = [b.dtype.np for b in (*kernel.outputs, *kernel.inputs)]
    if not any(t.kind == "f" for t in types):
        return launch

    def launch_parts(buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        parts = [
            b if b is None or b.dtype == t else b.reshape(-1).view(t)
            for b, t in zip(buffers, types)
        ]
        launch(parts, scalars)

    return launch_parts


def _emit(kernel: Kernel) -> Emitted:
    # Imported late: a process whose kernels are all native never needs it.
    from tilewright.codegen.numpy import emit

    return emit(kernel)


def _bundle(bundle: Bundle, launches: list[Launch]) -> Launch:
    """One launch that makes the launches of all members."""
    # Buffers are matched by place: members of one structure use the same names.
    output, first = 0, len(bundle.outputs)
    slots = {v.slot: i for i, v in enumerate(bundle.scalars)}
    steps = []
    for launch, member in zip(launches, bundle.members, strict=True):
        outputs, inputs = len(member.outputs), len(member.inputs)
        places = [*range(output, output + outputs), *range(first, first + inputs)]
        output, first = output + outputs, first + inputs
        numbers = [slots[v.slot] for v in member.scalars]
        steps.append((launch, _picker(places), _picker(numbers)))

    def launch_all(buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        for launch, buffers_of, scalars_of in steps:
            launch(buffers_of(buffers), scalars_of(scalars))

    return launch_all


def _picker(places: list[int]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Takes the items at `places` of a sequence."""
    if len(places) > 1:
        return operator.itemgetter(*places)
    if len(places) == 1:
        place = places[0]
        return lambda items: (items[place],)
    return lambda items: ()
