"""What became of a program: graphs, fusion, kernels and generated source of the plans that ran.

`report = tilewright.explain()` after a program ran, or `tilewright.explain(step)` to run a function
and explain the plans that it used. `print(report)` shows them, `report.write(folder)` keeps them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tilewright.codegen.kernel import Bundle, Kernel
from tilewright.codegen.kernel.mlir_printer import print_kernel
from tilewright.codegen.kernel.structure import describe
from tilewright.codegen.lower.external import External
from tilewright.codegen.program import Program, compile_graph, launched
from tilewright.ir.location import at_user_line
from tilewright.ir.mlir import print_graph
from tilewright.ir.node import reachable
from tilewright.ir.op import Kind
from tilewright.ir.rewrite import substitute
from tilewright.runtime import offline
from tilewright.runtime.plan import Plan, plans
from tilewright.runtime.segment import Segment
from tilewright.runtime.segments import stand_ins

from .. import recording
from ..recording.flushing import pending
from .prediction import cost_table

STAGES = ("graph", "fusion", "kernel", "source", "cost")

_UNCOUNTED = (Kind.LEAF, Kind.CONSTANT, Kind.MARKER)


@dataclass(frozen=True)
class Source:
    """Generated text of one launch. language: python (NumPy or Triton) or what a device emits."""

    name: str
    text: str


class PlanReport:
    """A plan, seen stage by stage."""

    def __init__(self, plan: Plan):
        self.plan = plan

    @cached_property
    def ops(self) -> int:
        """Op calls in the recorded graph; composites count as one."""
        nodes = reachable(self.plan.recorded)
        return sum(n.op.kind not in _UNCOUNTED for n in nodes)

    @property
    def launches(self) -> int:
        return self.plan.launches

    @property
    def runs(self) -> int:
        return self.plan.runs

    @property
    def run_seconds(self) -> float:
        """Of all runs together."""
        return self.plan.run_seconds

    @property
    def compile_seconds(self) -> float:
        return self.plan.compile_seconds

    @property
    def device(self) -> str:
        """The devices it runs on."""
        return ", ".join(dict.fromkeys(s.device.name for s in self.plan.segments)) or "none"

    @cached_property
    def bytes_moved(self) -> int:
        """What the launches of one run read and write, each buffer once a launch."""
        return sum(
            slot_bytes(segment.program, step.outputs) + slot_bytes(segment.program, step.inputs)
            for segment in self.plan.segments
            for step in segment.program.steps
        )

    def title(self) -> str:
        each = self.run_seconds / self.runs * 1e3 if self.runs else 0.0
        return (
            f"{self.ops} ops recorded, {self.launches} launches on {self.device}, "
            f"{size(self.bytes_moved)} moved; "
            f"{self.runs} runs of {each:.2f} ms, compiled in {self.compile_seconds * 1e3:.0f} ms"
        )

    def graph(self) -> str:
        """The recorded graph as MLIR, dialect tw."""
        return print_graph(self.plan.recorded)

    def lowered(self) -> str:
        """The same over primitives, simplified: what fusion sees."""
        return print_graph(self.plan.lowered)

    def fusion(self, target: str | None = None) -> str:
        """What each launch computes, and why it isn't fused with those it reads."""
        lines = []
        for segment, program in self.programs(target):
            lines.append(f"on {target or segment.device.name}:")
            # The members of a multi-tensor kernel say the same.
            for line, same in itertools.groupby(program.report):
                count = len(list(same))
                lines.append(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
        return "\n".join(lines)

    def kernels(self, target: str | None = None) -> list[Source]:
        """The kernel IR of each launch, in the short form for people."""
        return [Source(_name(kernel), _described(kernel)) for _, kernel in self._kernels(target)]

    def origins(self, target: str | None = None) -> list[str]:
        """Where the schedule of each launch is from: the default, or what the tuner found; of an
        autotuned kernel that of its config."""
        found = []
        for segment, kernel in self._kernels(target):
            if isinstance(kernel, External):
                found.append(kernel.registered.origin or "default")
                continue
            choice = segment.device.choice(kernel) if target is None else None
            found.append("default" if choice is None else choice.text)
        return found

    def mlir(self, target: str | None = None) -> list[Source]:
        """The same as MLIR, dialect twk."""
        return [
            Source(_name(k), f"// {_described(k)}" if isinstance(k, External) else print_kernel(k))
            for _, k in self._kernels(target)
        ]

    def sources(self, target: str | None = None) -> list[Source]:
        """The generated source of each launch: what the plan's device runs, or with a `target`
        (sm_90, gfx942, …) the Triton source for that GPU."""
        out = []
        for segment, kernel in self._kernels(target):
            text = _triton(kernel, target) if target else segment.source(kernel)
            out.append(Source(_name(kernel), text))
        return out

    def costs(self, target: str) -> str:
        """What each launch would take on a GPU, predicted from the compiled kernels: a table,
        without the kernels that the user wrote."""
        from tilewright.codegen.target import gpu

        kernels = [k for _, k in self._kernels(target) if not isinstance(k, External)]
        return cost_table(kernels, gpu(target))

    def _kernels(self, target: str | None) -> Iterator[tuple[Segment, Kernel | Bundle | External]]:
        for segment, program in self.programs(target):
            for kernel in launched(program):
                yield segment, kernel

    def programs(self, target: str | None = None) -> Iterator[tuple[Segment, Program]]:
        """What runs, by segment: on the plan's devices, or as a GPU would run it."""
        for segment in self.plan.segments:
            if target is None:
                yield segment, segment.program
            else:
                yield segment, self._for_gpu(segment, target)

    def _for_gpu(self, segment: Segment, target: str) -> Program:
        """The segment as a GPU would run it: another target fuses in another way."""
        from tilewright.codegen.target import gpu

        key = id(segment), target
        found = self._gpu_programs.get(key)
        if found is None:
            # What comes from another device is a leaf.
            roots = substitute(segment.roots, stand_ins(self.plan.crossings))
            found = compile_graph(roots, gpu(target))
            self._gpu_programs[key] = found
        return found

    @cached_property
    def _gpu_programs(self) -> dict[tuple[int, str], Program]:
        return {}

    def text(self, stages: Sequence[str] = STAGES, target: str | None = None) -> str:
        """The chosen stages as one text."""
        parts = []
        if "graph" in stages:
            parts.append(_section("graph (MLIR, dialect tw)", self.graph()))
        if "fusion" in stages:
            parts.append(_section("fusion", self.fusion(target)))
        if "kernel" in stages:
            texts = [
                f"// {i} {k.name}; schedule: {origin}\n{k.text}"
                for i, (k, origin) in enumerate(zip(self.kernels(target), self.origins(target)))
            ]
            parts.append(_section("kernels", "\n\n".join(texts)))
        if "source" in stages:
            texts = [f"# launch {i}\n{s.text}" for i, s in enumerate(self.sources(target))]
            parts.append(_section(f"source for {target or self.device}", "\n\n".join(texts)))
        if "cost" in stages and target:
            parts.append(_section(f"predicted for {target}", self.costs(target)))
        return "\n\n".join(parts)

    def write(self, folder: str | Path, targets: Sequence[str] = ()) -> list[Path]:
        """Every stage as files in `folder`, which is made; returns their paths.

        graph.mlir and lowered.mlir, fusion.txt, kernels/ (as text and as MLIR), the source for the
        plan's device in source/, and for each of `targets` the Triton sources in a folder of its
        name.
        """
        folder = Path(folder)
        files = {
            "graph.mlir": self.graph(),
            "lowered.mlir": self.lowered(),
            "fusion.txt": f"{self.title()}\n\n{self.fusion()}",
        }
        files |= _numbered("kernels", ".txt", self.kernels())
        files |= _numbered("kernels", ".mlir", self.mlir())
        files |= _numbered("source", ".py", self.sources())
        for target in targets:
            files[f"{target}/fusion.txt"] = self.fusion(target)
            files[f"{target}/cost.txt"] = self.costs(target)
            files |= _numbered(target, ".py", self.sources(target))
        out = []
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text if text.endswith("\n") else text + "\n", encoding="utf-8")
            out.append(path)
        return out


@dataclass(frozen=True)
class Report:
    """Plans, the busiest first."""

    plans: tuple[PlanReport, ...]

    @property
    def compile_seconds(self) -> float:
        return sum(p.compile_seconds for p in self.plans)

    @property
    def run_seconds(self) -> float:
        return sum(p.run_seconds for p in self.plans)

    def text(self, top: int = 1, stages: Sequence[str] = STAGES, target: str | None = None) -> str:
        """The `top` busiest plans, the others with their title alone."""
        if not self.plans:
            return "nothing was computed: no value was asked for"
        parts = []
        for i, plan in enumerate(self.plans):
            parts.append(f"plan {i}: {plan.title()}")
            if i < top:
                parts.append(plan.text(stages, target))
        return "\n\n".join(parts)

    def write(self, folder: str | Path, top: int = 1, targets: Sequence[str] = ()) -> list[Path]:
        """Files of the `top` busiest plans in folders plan-0, plan-1, …; see PlanReport.write."""
        out: list[Path] = []
        for i, plan in enumerate(self.plans[:top]):
            out += plan.write(Path(folder) / f"plan-{i}", targets)
        return out

    def __str__(self) -> str:
        return self.text()


def explain(function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Report:
    """A report on what was computed so far; with a function, on what a call of it computes."""
    recording.flush()
    before = {id(p): (p.runs, p.run_seconds) for p in plans()}
    if function is None:
        before = {}
    else:
        result = function(*args, **kwargs)
        recording.flush()
        del result
    used = [p for p in plans() if p.runs > before.get(id(p), (0, 0.0))[0]]
    used.sort(key=lambda p: p.run_seconds - before.get(id(p), (0, 0.0))[1], reverse=True)
    return Report(tuple(PlanReport(p) for p in used))


def predict(function: Callable[..., Any], *args: Any, **kwargs: Any) -> PlanReport:
    """A report on what a call would compute: `predict(step).costs("sm_90")` tells what a training
    step takes on a GPU that isn't here, of any size.

    Nothing is computed. What the call wrote to is as before, gradients that are new are None, and
    what else it leaves behind (an optimizer's state) holds nothing: make a model for this alone.
    RuntimeError if it looks at a value.
    """

    def refusal() -> Exception:
        return RuntimeError(
            "predict: the function looks at a value (a branch on a tensor, .item(), print), which "
            f"is not computed{at_user_line()}"
        )

    with recording.unevaluated(refusal):
        result = function(*args, **kwargs)
        report = PlanReport(Plan(pending()))
        del result
    return report


def check_target(target: str) -> str:
    """`target` if there is such a GPU; ValueError if not."""
    if target not in offline.TARGETS:
        raise ValueError(f"no target {target!r}: expected one of {', '.join(offline.TARGETS)}")
    return target


def _described(kernel: Kernel | Bundle | External) -> str:
    if isinstance(kernel, External):
        passed = ", ".join(f"{a.name}: {a.type}" for a in kernel.emitted.arguments)
        return f"external {kernel.name}({passed}) over {kernel.emitted.programs}"
    return "\n".join(map(describe, members(kernel)))


def members(kernel: Kernel | Bundle) -> tuple[Kernel, ...]:
    return kernel.members if isinstance(kernel, Bundle) else (kernel,)


def _name(kernel: Kernel | Bundle | External) -> str:
    if isinstance(kernel, External):
        return kernel.name
    first, *more = members(kernel)
    return f"{first.name}_and_{len(more)}_more" if more else first.name


def _triton(kernel: Kernel | Bundle | External, target: str) -> str:
    if isinstance(kernel, External):
        return kernel.emitted.source
    from tilewright.codegen.schedule import default_schedule
    from tilewright.codegen.target import gpu
    from tilewright.codegen.triton import emit

    return emit(kernel, default_schedule(kernel, gpu(target))).source


def slot_bytes(program: Program, slots: Sequence[int]) -> int:
    """The size of so many slots of a program, each counted once."""
    used = (program.slots[i] for i in dict.fromkeys(slots))
    return sum(_elements(slot.shape) * slot.dtype.itemsize for slot in used)


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def size(count: int) -> str:
    for unit in ("bytes", "KB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000  # type: ignore[assignment]
    return f"{count:.3g} GB"


def _section(title: str, text: str) -> str:
    return f"---- {title} {'-' * max(3, 90 - len(title))}\n{text}"


def _numbered(folder: str, suffix: str, sources: Sequence[Source]) -> dict[str, str]:
    return {
        f"{folder}/{i:02d}_{re.sub('[^A-Za-z0-9_]+', '_', s.name)[:60]}{suffix}": s.text
        for i, s in enumerate(sources)
    }
