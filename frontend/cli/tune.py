"""`tilewright tune`: find the best schedules of kernels, and look after what was found."""

from __future__ import annotations

import enum
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from typer.core import TyperGroup

from .errors import fail, user_errors

if TYPE_CHECKING:
    from tilewright.runtime.results.record import Record

    from ..tuning import Launched

DAY = 86400.0


class Effort(str, enum.Enum):
    quick = "quick"
    full = "full"
    exhaustive = "exhaustive"


class _Group(TyperGroup):
    """Takes any argument that isn't a command as a target to tune."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "--help"):
            args = ["search", *args]
        return super().parse_args(ctx, args)


tune = typer.Typer(
    cls=_Group,
    no_args_is_help=True,
    help="""Find the best schedules for kernels, once.

    tilewright tune train.py -- --epochs 1     the kernels a script launches, the busiest first

    tilewright tune model:net --input 32x784     those of a model, or net.onnx

    tilewright tune matmul 512x512x512 --dtype float32     a family: matmul, conv2d, attention,
    causal-attention, softmax, layer_norm, reduce, reduce-columns, elementwise

    What is found is kept: kernels get it from then on, searches go on where they were left, and
    nothing is measured twice.
    """,
)


@tune.command(
    hidden=True, context_settings={"allow_interspersed_args": True, "ignore_unknown_options": False}
)
def search(
    what: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A script, MODULE:OBJECT, FILE.onnx or a family."),
    ],
    rest: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SHAPE|ARGS]...", help="Shapes of a family, or for the script."),
    ] = None,
    inputs: Annotated[
        list[str] | None, typer.Option("--input", help="SHAPE[,DTYPE] of a model's; repeatable.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A saved state_dict to load into the model first.")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Of a family's operands.")] = "float32",
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:N; of families and models.")] = "",
    effort: Annotated[Effort, typer.Option(help="How much of a space to measure.")] = Effort.full,
    budget: Annotated[str, typer.Option(help="Time in all: 30s, 5m, 1h.")] = "",
    top: Annotated[int, typer.Option(min=1, help="Only so many kernels, the busiest.")] = 1000,
    target: Annotated[
        str | None, typer.Option(help="A GPU that isn't here: sm_80, sm_90, sm_100; --offline.")
    ] = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Rank by the cost model, measure nothing.")
    ] = False,
    plot: Annotated[
        Path | None, typer.Option(help="Write pictures of the searches to this folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Tune what TARGET launches."""
    from ..inspection.explanation import check_target
    from ..tuning import tune_kernels

    seconds = _seconds(budget)
    if offline != (target is not None):
        fail("--offline and --target go together: a GPU that isn't here can't be measured")
    if target is not None:
        with user_errors(ValueError):
            check_target(target)
    if plot is not None:
        _check_plots()
    work = _work(what, rest or [], inputs, weights, dtype, device, target)[:top]
    if not work:
        fail(f"{what} launched no kernel that can be tuned", 1)
    if target is not None:
        _rank(work, target, effort.value, as_json)
        return
    with user_errors(RuntimeError, ValueError, status=1):
        report = tune_kernels(work, effort.value, seconds, False if quiet else None)
    if as_json:
        print(json.dumps(report.data(), indent=2))
    else:
        _print(report.table())
        print(report.summary())
    if plot is not None:
        from ..tuning.plots import write

        files = write(report, plot)
        print(f"wrote {len(files)} pictures to {plot}", file=sys.stderr)
    if report.interrupted:
        raise typer.Exit(130)


def _work(
    what: str,
    rest: list[str],
    inputs: list[str] | None,
    weights: Path | None,
    dtype: str,
    device: str,
    target: str | None,
) -> list[Launched]:
    """The kernels that TARGET launches."""
    from ..tuning import families, work
    from .target import is_onnx, model_of

    if what in families.FAMILIES:
        return _family(what, rest, dtype, device, target)
    if what.endswith(".py") and ":" not in what:
        return _script(Path(what), rest, target)
    if ":" in what or is_onnx(what):
        if not inputs:
            fail("a model wants --input SHAPE[,DTYPE], once for each of its inputs")
        model, args = model_of(what, inputs, weights, device)

        with user_errors(RuntimeError, ValueError, TypeError, status=1):
            if target is None:
                return work.launched_by(model, args)
            return work.recorded(model, args, target)
    known = ", ".join(families.FAMILIES)
    fail(f"can't tune {what!r}: expected a script, MODULE:OBJECT, FILE.onnx, or one of {known}")


def _family(
    name: str, shapes: Sequence[str], dtype: str, device: str, target: str | None
) -> list[Launched]:
    from tilewright.ir.dtype import named

    from ..tuning import families

    if not shapes:
        about = families.FAMILIES[name]
        fail(f"{name} wants shapes: {about.sizes}, such as {about.shape}")
    with user_errors(ValueError, RuntimeError):
        sizes = [families.parse_shape(name, text) for text in shapes]
        try:
            kind = named(dtype)
        except KeyError:
            raise ValueError(f"no dtype {dtype!r}") from None
        return families.kernels_of(name, sizes, kind, device or "cpu", target)


def _script(path: Path, args: list[str], target: str | None) -> list[Launched]:
    from tilewright.runtime import tiers

    from ..tuning import work
    from .script import run_script, script_file

    with tiers.fused():
        status = run_script(script_file(path), args)
    if status:
        raise typer.Exit(status)
    sys.stdout.flush()
    return work.launched_so_far(target)


def _rank(work: Sequence[Launched], target: str, effort: str, as_json: bool) -> None:
    from tilewright.codegen.lower.external import Autotuned
    from tilewright.runtime.results.database import Database
    from tilewright.runtime.tuner.gpu import Offline
    from tilewright.runtime.tuner.session import rank

    from ..tuning.report import ranking_data, ranking_table

    with Database() as database:
        engine = Offline(target)
        found = [
            rank(engine, database, each.kernel, effort, each.family)
            for each in work
            if not isinstance(each.kernel, Autotuned)  # no cost model ranks these
        ]
    if as_json:
        print(json.dumps({"target": target, "kernels": [ranking_data(r) for r in found]}, indent=2))
        return
    _print(ranking_table(found))
    print(f"predictions for {target}: kept for a search on the GPU to begin with, not used as such")


@tune.command("list")
def list_(
    device: Annotated[str, typer.Option(help="Only devices whose name has this in it.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the kernels that were tuned."""
    from ..tuning.report import records_table

    records = [r for r in _records() if device in r.key.device]
    if as_json:
        print(json.dumps([_data(r) for r in records], indent=2))
    elif records:
        _print(records_table(records))
    else:
        print(f"nothing was tuned yet: {_path()}")


@tune.command()
def show(
    name: Annotated[str, typer.Argument(help="A kernel's name, or a part of it.")],
    top: Annotated[int, typer.Option(min=1, help="How many candidates.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """Show the candidates of kernels, the best first."""
    from ..tuning.report import candidates_table, records_table

    with _database() as database:
        found = [database.record(r.key) for r in database.records() if name in r.about.name]
    records = [r for r in found if r is not None]
    if not records:
        fail(f"no kernel with {name!r} in its name was tuned", 1)
    if as_json:
        print(json.dumps([_data(r) for r in records], indent=2))
        return
    for record in records:
        _print(records_table([record]))
        _print(candidates_table(record, top))


@tune.command("export")
def export_(
    file: Annotated[Path, typer.Argument(help="The file to write.")],
    candidates: Annotated[
        bool, typer.Option("--candidates", help="All that was measured, not the best alone.")
    ] = False,
) -> None:
    """Write what was found to one file, to keep beside a project. TW_TUNE_FILE=FILE pins it."""
    from tilewright.runtime.results import portable

    with _database() as database:
        chosen = [r for r in database.records() if candidates or r.chosen is not None]
        records = [database.record(r.key) for r in chosen] if candidates else chosen
    with user_errors(OSError, status=1):
        count = portable.write(file, [r for r in records if r is not None])
    print(f"wrote {file}: {count} kernels")


@tune.command("import")
def import_(file: Annotated[Path, typer.Argument(help="What `tune export` wrote.")]) -> None:
    """Take over what an exported file holds; of two choices the newer one stays."""
    from tilewright.runtime.results import portable

    with user_errors(OSError, ValueError):
        records = portable.read(file)
    with _database() as database:
        for record in records:
            database.put(record)
    print(f"took {len(records)} kernels from {file}")


@tune.command()
def merge(
    files: Annotated[list[Path], typer.Argument(help="Other databases.")],
) -> None:
    """Take over what other databases hold."""
    import sqlite3

    from tilewright.runtime.results.database import Database

    count = 0
    with _database() as database:
        for file in files:
            if not file.is_file():
                fail(f"no such file: {file}")
            with user_errors(sqlite3.Error), Database(file) as other:
                for record in other.records():
                    whole = other.record(record.key)
                    if whole is not None:
                        database.put(whole)
                        count += 1
    print(f"took {count} kernels from {len(files)} databases")


@tune.command()
def prune(
    days: Annotated[
        float | None, typer.Option(help="Remove what didn't change for so many days.")
    ] = None,
    old: Annotated[
        bool, typer.Option("--old", help="Remove what other versions than these measured.")
    ] = False,
) -> None:
    """Remove results that are of no use any more."""
    from tilewright.runtime.tuner import engines
    from tilewright.runtime.tuner.gpu import Offline

    if days is None and not old:
        fail("say what to remove: --days N, --old, or both")
    before = None if days is None else time.time() - days * DAY
    versions = [engines.named("cpu").versions, Offline("sm_90").versions] if old else None
    with _database() as database:
        print(f"removed {database.prune(before, versions)} kernels from {database.path}")


def _database() -> Any:
    from tilewright.runtime.results.database import Database

    return Database()


def _path() -> Path:
    from tilewright.runtime.results.place import default_path

    return default_path()


def _records() -> list[Record]:
    with _database() as database:
        found: list[Record] = database.records()
    return found


def _data(record: Record) -> dict[str, Any]:
    from tilewright.runtime.results.portable import entry

    return entry(record)


def _seconds(text: str) -> float | None:
    """Seconds in a text such as 30s, 5m, 1h or a plain number; None for an empty text."""
    if not text:
        return None
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number, unit = (text[:-1], units[text[-1]]) if text[-1] in units else (text, 1.0)
    try:
        found = float(number) * unit
    except ValueError:
        found = -1.0
    if not 0 < found < float("inf"):
        fail(f"--budget: expected a time such as 30s, 5m or 1h, got {text!r}")
    return found


def _check_plots() -> None:
    import importlib.util

    if importlib.util.find_spec("matplotlib") is None:
        fail("--plot needs matplotlib: pip install 'tilewright[plot]'")


def _print(table: Any) -> None:
    # Off a terminal, lines are wrapped late.
    Console(width=None if sys.stdout.isatty() else 200, highlight=False).print(table)
