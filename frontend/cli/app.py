"""The commands."""

from __future__ import annotations

import enum
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from tilewright.runtime.files import is_plain

from .as_torch import as_torch
from .errors import user_errors
from .run_onnx import run_onnx
from .tune import tune

if TYPE_CHECKING:
    from ..inspection import Report

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="PyTorch's programming model on kernels the framework writes itself.",
)


app.add_typer(tune, name="tune")
app.add_typer(as_torch, name="as-torch")
app.command("run-onnx")(run_onnx)


class Stage(str, enum.Enum):
    graph = "graph"
    fusion = "fusion"
    kernel = "kernel"
    source = "source"
    cost = "cost"
    all = "all"


class Drawn(str, enum.Enum):
    ops = "ops"
    kernels = "kernels"
    plan = "plan"


Script = Annotated[Path, typer.Argument(metavar="SCRIPT", help="A Python file.")]
Args = Annotated[list[str] | None, typer.Argument(metavar="[ARGS]...", help="For the script.")]


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        from ..version import tilewright

        print(f"tilewright {tilewright}")
        raise typer.Exit()


@app.command(context_settings={"allow_interspersed_args": False, "ignore_unknown_options": True})
def run(
    script: Script,
    args: Args = None,
    module: Annotated[
        bool, typer.Option("-m", help="SCRIPT is a module's name, as for `python -m`.")
    ] = False,
) -> None:
    """Run an unmodified PyTorch script; `import torch` means tilewright."""
    from .script import run_module, run_script, script_file

    if module:
        raise typer.Exit(run_module(str(script), args or []))
    raise typer.Exit(run_script(script_file(script), args or []))


@app.command()
def explain(
    script: Script,
    args: Args = None,
    top: Annotated[int, typer.Option(min=1, help="How many of the busiest plans.")] = 1,
    stage: Annotated[list[Stage] | None, typer.Option(help="What to show; repeatable.")] = None,
    target: Annotated[
        str | None,
        typer.Option(help="Show what a GPU gets: sm_80, sm_90, sm_100, gfx942."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Write files to this folder instead.")
    ] = None,
    graph: Annotated[
        Path | None,
        typer.Option(help="Draw the plans in this file instead: .graphml, .dot, .gv or .json."),
    ] = None,
    graph_of: Annotated[
        Drawn, typer.Option(help="What to draw: the recorded ops, the kernels, or the plan.")
    ] = Drawn.ops,
) -> None:
    """Run a script, then show what became of its busiest plans.

    The graph as MLIR, what was fused and why the rest was not, the kernels and their generated
    source; with a target, what each kernel would take on that GPU. Arguments of the script go after
    `--`.
    """
    from tilewright.runtime import tiers

    from .. import recording
    from ..inspection.explanation import STAGES, check_target
    from ..inspection.explanation import explain as report_on
    from ..inspection.formats import check_ending
    from .script import run_script, script_file

    with user_errors(ValueError):
        if target is not None:
            check_target(target)
        if graph is not None:
            check_ending(graph)
    with tiers.fused():
        status = run_script(script_file(script), args or [])
        recording.flush()
    if status:
        raise typer.Exit(status)
    report = report_on()
    sys.stdout.flush()
    if graph is not None:
        _draw(report, top, graph, graph_of, target)
    if out is not None:
        files = report.write(out, top, [target] if target else [])
        print(f"wrote {len(files)} files to {out}")
        for i, plan in enumerate(report.plans[:top]):
            print(f"plan-{i}: {plan.title()}")
    if out is not None or (graph is not None and not stage):
        return
    chosen = [s.value for s in stage or [Stage.all]]
    stages = STAGES if "all" in chosen else tuple(s for s in STAGES if s in chosen)
    print(report.text(top, stages, target))


def _draw(report: Report, top: int, path: Path, drawn: Drawn, target: str | None) -> None:
    """Write each of the busiest plans to its own file. From the second on, names get a number
    before the ending."""
    from .. import inspection

    if not report.plans:
        print(report.text())
    of = {
        Drawn.ops: inspection.graph_of,
        Drawn.kernels: inspection.kernels_of,
        Drawn.plan: inspection.plan_of,
    }[drawn]
    for i, plan in enumerate(report.plans[:top]):
        file = path.with_stem(f"{path.stem}-{i}") if i else path
        found = of(plan, target=target)
        inspection.write(found, file)
        counts = f"{found.number_of_nodes()} nodes, {found.number_of_edges()} edges"
        print(f"wrote {file}: {counts}; plan {i}: {plan.title()}")


@app.command()
def export(
    target: Annotated[str, typer.Argument(metavar="MODULE:OBJECT", help="A module or function.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    inputs: Annotated[
        list[str], typer.Option("--input", help="SHAPE[,DTYPE]: 1x1x8x8 or 2x16,int64; repeatable.")
    ],
    dynamic_batch: Annotated[
        bool, typer.Option("--dynamic-batch", help="Leave the first size of each input open.")
    ] = False,
    opset: Annotated[int, typer.Option(help="The ONNX opset, 18 or newer.")] = 18,
    weights: Annotated[
        Path | None, typer.Option(help="A saved state_dict to load into the module first.")
    ] = None,
    verify: Annotated[bool, typer.Option(help="Compare with onnxruntime.")] = False,
) -> None:
    """Write a model to an ONNX file.

    MODULE is a module that can be imported from here, or the path of a .py file. OBJECT is an
    nn.Module, a class of them that takes no arguments, or a function of tensors.
    """
    from .. import onnx
    from .target import model_of

    model, args = model_of(target, inputs, weights)
    # A RuntimeError usually comes from an op whose operands don't fit. It names the line.
    with user_errors(RuntimeError, ImportError, ValueError, TypeError, status=1):
        dynamic: Any = None
        if dynamic_batch:
            dynamic = _batch_axes(model, args)
        output.parent.mkdir(parents=True, exist_ok=True)
        program = onnx.export(
            model,
            args,
            output,
            opset_version=opset,
            dynamic_axes=dynamic,
            verify=True if verify else None,
            external_data=False,
        )
    graph = program.model_proto.graph
    _tell(output, [f"{_signature(graph.input)} -> {_signature(graph.output)}"])


@app.command("compile")
def compile_(
    source: Annotated[
        str, typer.Argument(metavar="MODULE:OBJECT", help="A module or function, or a FILE.onnx.")
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    inputs: Annotated[
        list[str], typer.Option("--input", help="SHAPE[,DTYPE]: 1x1x8x8 or 2x16,int64; repeatable.")
    ],
    target: Annotated[str, typer.Option(help="The GPU: sm_80, sm_90, sm_100.")] = "sm_90",
    weights: Annotated[
        Path | None, typer.Option(help="A saved state_dict to load into the module first.")
    ] = None,
) -> None:
    """Compile a model for a GPU into one file, which runs where no compiler is.

    MODULE:OBJECT as for `export`, or an ONNX file. On the machine with the GPU,
    torch.aot.load(FILE) is the model.
    """
    from .. import aot
    from .target import model_of

    model, args = model_of(source, inputs, weights)
    with user_errors(RuntimeError, ImportError, ValueError, TypeError, status=1):
        output.parent.mkdir(parents=True, exist_ok=True)
        package = aot.compile(model, args, output, target=target)
    kernels = package.kernels
    code = sum(len(k.image.binary) for k in kernels) / 1e3
    said = f"{len(kernels)} kernels for {target}, {code:.0f} kB of code"
    if is_plain(output):
        said += f", {output.stat().st_size / 1e6:.1f} MB in all"
    values = [("input", v) for v in package.inputs] + [("output", v) for v in package.outputs]
    _tell(output, [said, *(f"  {what} {v.name}: {v.dtype}{list(v.shape)}" for what, v in values)])


def _tell(output: Path, lines: Sequence[str]) -> None:
    """Report the written file, on stderr if the file itself may be stdout."""
    to = sys.stdout if is_plain(output) else sys.stderr
    print(f"wrote {output}: " + "\n".join(lines), file=to)


def _batch_axes(model: Any, args: tuple[Any, ...]) -> dict[str, dict[int, str]]:
    from ..inspection.tracing import Call

    call = Call(model, args, None)
    found = {
        name: {0: "batch"}
        for name, tensor in zip(call.names, call.inputs, strict=True)
        if tensor.shape
    }
    if not found:
        raise ValueError("--dynamic-batch: no input has an axis")
    return found


def _signature(values: Any) -> str:
    shown = []
    for value in values:
        sizes = [d.dim_param or str(d.dim_value) for d in value.type.tensor_type.shape.dim]
        shown.append(f"{value.name}[{', '.join(sizes)}]")
    return ", ".join(shown)


@app.command()
def pack(
    script: Script,
    output: Annotated[Path, typer.Option("-o", "--output", help="The file to write.")],
    args: Args = None,
    target: Annotated[str, typer.Option(help="The GPU: sm_80, sm_90, sm_100.")] = "sm_90",
    card: Annotated[
        str, typer.Option(metavar="N,GB/S,MB", help="That card's numbers; see `tilewright env`.")
    ] = "",
    driver: Annotated[float, typer.Option(help="CUDA of that machine's driver, as 12.8.")] = 13.0,
) -> None:
    """Run a script here, and compile its kernels for a GPU into one file.

    On the machine with the GPU, TW_KERNELS=FILE finds them, and a first step compiles nothing. It
    needs the same version of Triton. Schedules go by a card's multiprocessors, GB/s of its memory
    and MB of its cache: --card 132,3352.32,52.4288 is an H100 SXM. Arguments of the script go
    after `--`.
    """
    from tilewright.codegen.kernel import Bundle, Kernel
    from tilewright.codegen.program import launched
    from tilewright.runtime import tiers
    from tilewright.runtime.cuda import pack as packs

    from .. import recording
    from ..inspection.explanation import check_target
    from ..inspection.explanation import explain as report_on
    from .card import target_of
    from .script import run_script, script_file

    with user_errors(ValueError):
        if not check_target(target).startswith("sm_"):
            raise ValueError(f"packs are for NVIDIA's GPUs, got {target!r}")
        machine = target_of(target, card)
    with tiers.fused():
        status = run_script(script_file(script), args or [])
        recording.flush()
    if status:
        raise typer.Exit(status)
    programs = [p for plan in report_on().plans for _, p in plan.programs(machine)]
    kernels = [k for p in programs for k in launched(p) if isinstance(k, (Kernel, Bundle))]
    with user_errors(RuntimeError, ImportError, status=1):
        images = packs.compiled(kernels, machine, round(driver * 1000)).images
    output.parent.mkdir(parents=True, exist_ok=True)
    packs.write(output, target, images)
    size = sum(len(image.binary) for image in images.values())
    _tell(output, [f"{len(images)} kernels for {target}, {size / 1e3:.0f} kB of code"])


@app.command()
def env(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show versions, devices, extras and caches."""
    from .environment import environment

    found = environment()
    if as_json:
        print(json.dumps(found, indent=2))
        return
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    for key in ("tilewright", "python", "platform", "installed at"):
        table.add_row(key, str(found[key]))
    table.add_row("packages", _listed(found["packages"]))
    for extra, packages in found["extras"].items():
        table.add_row(f"extra {extra}", _listed(packages))
    for name, description in found["devices"].items():
        table.add_row(f"device {name}", description)
    cache = found["cache"]
    state = "" if cache["on"] else " (off: TW_CACHE=0)"
    size = f"{cache['entries']} entries, {cache['bytes'] / 1e6:.1f} MB"
    table.add_row("cache", f"{cache['folder']}{state}, {size}")
    # Off a terminal, lines aren't wrapped.
    width = None if sys.stdout.isatty() else 1000
    Console(width=width, highlight=False).print(table)


def _listed(packages: dict[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(missing)'}" for name, version in packages.items())
