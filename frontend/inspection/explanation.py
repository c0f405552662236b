"""Explanations of a program: graphs, fusion, kernels and generated source of the plans that ran.

`tilewright.explain()` reports on all plans that ran so far. `tilewright.explain(step)` runs a
function and reports on the plans that it used. `print(report)` shows a report,
`report.write(folder)` writes it to files.
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
from tilewright.codegen.lower.host import Routine
from tilewright.codegen.program import Program, compile_graph, launched
from tilewright.codegen.target import Target
from tilewright.ir.location import at_user_line
from tilewright.ir.mlir import print_graph
from tilewright.ir.node import reachable
from tilewright.ir.op import Kind
from tilewright.ir.rewrite import substitute
from tilewright.runtime import offline, tiers
from tilewright.runtime.plan import Plan
from tilewright.runtime.segment import Segment
from tilewright.runtime.segments import stand_ins

from .. import recording
from ..recording.flushing import pending
from .prediction import cost_table

STAGES = ("graph", "fusion", "kernel", "source", "cost")

_UNCOUNTED = (Kind.LEAF, Kind.CONSTANT, Kind.MARKER)


@dataclass(frozen=True)
class Source:
    """Generated text of one launch."""

    name: str
    text: str


class PlanReport:
    """A report on a plan, stage by stage."""

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
        """The time of all runs together."""
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
        """Bytes that the launches of one run read and write, each buffer once a launch."""
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
        """The graph of primitives after simplification, as fusion sees it."""
        return print_graph(self.plan.lowered)

    def fusion(self, target: str | None = None) -> str:
        """The ops of each launch, and why it isn't fused with the launches that it reads."""
        lines = []
        for segment, program in self.programs(target):
            lines.append(f"on {target or segment.device.name}:")
            # The members of a multi-tensor kernel have equal lines.
            for line, same in itertools.groupby(program.report):
                count = len(list(same))
                lines.append(f"  {line}" + (f" ({count} times)" if count > 1 else ""))
        return "\n".join(lines)

    def kernels(self, target: str | None = None) -> list[Source]:
        """The kernel IR of each launch, in the short form for people."""
        return [Source(_name(kernel), _described(kernel)) for _, kernel in self._kernels(target)]

    def origins(self, target: str | None = None) -> list[str]:
        """The origin of each launch's schedule: the default or the tuner. For a user's autotuned
        kernel, the origin of its config."""
        found = []
        for segment, kernel in self._kernels(target):
            if isinstance(kernel, External):
                found.append(kernel.registered.origin or "default")
                continue
            if target is not None or isinstance(kernel, Routine):
                found.append("default")
                continue
            choice = segment.device.choice(kernel)
            found.append("default" if choice is None else choice.text)
        return found

    def mlir(self, target: str | None = None) -> list[Source]:
        """The kernel IR of each launch as MLIR, dialect twk."""
        return [
            Source(
                _name(k),
                f"// {_described(k)}" if isinstance(k, (External, Routine)) else print_kernel(k),
            )
            for _, k in self._kernels(target)
        ]

    def sources(self, target: str | None = None) -> list[Source]:
        """The generated source of each launch, for the plan's device. With a `target` (sm_90,
        gfx942, …) the Triton source for that GPU."""
        out = []
        for segment, kernel in self._kernels(target):
            text = _triton(kernel, target) if target else segment.source(kernel)
            out.append(Source(_name(kernel), text))
        return out

    def costs(self, target: str) -> str:
        """A table of each launch's predicted time on a GPU, by its compiled kernel. The user's own
        kernels are left out."""
        from tilewright.codegen.target import gpu

        kernels = [k for _, k in self._kernels(target) if not isinstance(k, (External, Routine))]
        return cost_table(kernels, gpu(target))

    def _kernels(
        self, target: str | None
    ) -> Iterator[tuple[Segment, Kernel | Bundle | External | Routine]]:
        for segment, program in self.programs(target):
            for kernel in launched(program):
                yield segment, kernel

    def programs(self, target: str | Target | None = None) -> Iterator[tuple[Segment, Program]]:
        """Each segment with its program, for the plan's devices or for the GPU `target`."""
        from tilewright.codegen.target import gpu

        machine = gpu(target) if isinstance(target, str) else target
        for segment in self.plan.segments:
            if machine is None:
                yield segment, segment.program
            else:
                yield segment, self._for_gpu(segment, machine)

    def _for_gpu(self, segment: Segment, target: Target) -> Program:
        """The segment's program for a GPU, since fusion depends on the target."""
        key = id(segment), target
        found = self._gpu_programs.get(key)
        if found is None:
            # Values from another device are leaves.
            roots = substitute(segment.roots, stand_ins(self.plan.crossings))
            found = compile_graph(roots, target)
            self._gpu_programs[key] = found
        return found

    @cached_property
    def _gpu_programs(self) -> dict[tuple[int, Target], Program]:
        return {}

    def text(self, stages: Sequence[str] = STAGES, target: str | None = None) -> str:
        """The stages `stages` as one text."""
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
        """Write every stage to files in `folder`, which is made if needed. Returns their paths.

        The files: graph.mlir, lowered.mlir, fusion.txt, kernels/ (as text and as MLIR), source/ for
        the plan's device, and for each of `targets` a folder with its Triton sources.
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
    """Reports on plans, the busiest first."""

    plans: tuple[PlanReport, ...]

    @property
    def compile_seconds(self) -> float:
        return sum(p.compile_seconds for p in self.plans)

    @property
    def run_seconds(self) -> float:
        return sum(p.run_seconds for p in self.plans)

    def text(self, top: int = 1, stages: Sequence[str] = STAGES, target: str | None = None) -> str:
        """The stages of the `top` busiest plans, and the titles of the others."""
        if not self.plans:
            return "nothing was computed: no value was asked for"
        parts = []
        for i, plan in enumerate(self.plans):
            parts.append(f"plan {i}: {plan.title()}")
            if i < top:
                parts.append(plan.text(stages, target))
        return "\n\n".join(parts)

    def write(self, folder: str | Path, top: int = 1, targets: Sequence[str] = ()) -> list[Path]:
        """Write the `top` busiest plans to folders plan-0, plan-1, …; see PlanReport.write."""
        out: list[Path] = []
        for i, plan in enumerate(self.plans[:top]):
            out += plan.write(Path(folder) / f"plan-{i}", targets)
        return out

    def __str__(self) -> str:
        return self.text()


def explain(function: Callable[..., Any] | None = None, *args: Any, **kwargs: Any) -> Report:
    """A report on all plans run so far; with a function, on the plans of a call, which is made."""
    recording.flush()
    before = {id(p): (p.runs, p.run_seconds) for p in tiers.plans()}
    if function is None:
        before = {}
    else:
        with tiers.fused():
            result = function(*args, **kwargs)
            recording.flush()
        del result
    used = [p for p in tiers.plans() if p.runs > before.get(id(p), (0, 0.0))[0]]
    used.sort(key=lambda p: p.run_seconds - before.get(id(p), (0, 0.0))[1], reverse=True)
    return Report(tuple(PlanReport(p) for p in used))


def predict(function: Callable[..., Any], *args: Any, **kwargs: Any) -> PlanReport:
    """A report on the plan of a call, without computing it. `predict(step).costs("sm_90")` predicts
    the time of a training step of any size on a GPU that isn't present.

    In-place writes of the call are undone and new gradients are None. Other state that it leaves
    (an optimizer's) has no values, so make a model for this alone. RuntimeError if the call reads a
    value.
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
    """`target`, if it is a known GPU; else ValueError."""
    if target not in offline.TARGETS:
        raise ValueError(f"no target {target!r}: expected one of {', '.join(offline.TARGETS)}")
    return target


def _described(kernel: Kernel | Bundle | External | Routine) -> str:
    if isinstance(kernel, Routine):
        return str(kernel)
    if isinstance(kernel, External):
        passed = ", ".join(f"{a.name}: {a.type}" for a in kernel.emitted.arguments)
        return f"external {kernel.name}({passed}) over {kernel.emitted.programs}"
    return "\n".join(map(describe, members(kernel)))


def members(kernel: Kernel | Bundle) -> tuple[Kernel, ...]:
    return kernel.members if isinstance(kernel, Bundle) else (kernel,)


def _name(kernel: Kernel | Bundle | External | Routine) -> str:
    if isinstance(kernel, (External, Routine)):
        return kernel.name
    first, *more = members(kernel)
    return f"{first.name}_and_{len(more)}_more" if more else first.name


def _triton(kernel: Kernel | Bundle | External | Routine, target: str) -> str:
    if isinstance(kernel, Routine):
        return f"# {kernel}, on the host\n"
    if isinstance(kernel, External):
        return kernel.emitted.source
    from tilewright.codegen.schedule import default_schedule
    from tilewright.codegen.target import gpu
    from tilewright.codegen.triton import emit

    return emit(kernel, default_schedule(kernel, gpu(target))).source


def slot_bytes(program: Program, slots: Sequence[int]) -> int:
    """Bytes of the given slots of a program, each counted once."""
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
