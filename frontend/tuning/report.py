"""Reports on tuning: a table for people, plain data for machines."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from tilewright.runtime.results.record import BAD, MEASURED, Options, Record
from tilewright.runtime.tuner.session import Ranking, Result

from .work import Launched


@dataclass(frozen=True)
class TunedKernel:
    """A kernel and the result of its search."""

    launched: Launched
    result: Result

    @property
    def record(self) -> Record:
        return self.result.record

    def data(self) -> dict[str, Any]:
        result, record = self.result, self.record
        return {
            "name": record.about.name,
            "family": record.about.family,
            "dtype": record.about.dtype,
            "device": record.key.device,
            "sizes": list(record.key.sizes),
            "launches": self.launched.count,
            "default_seconds": record.default_seconds,
            "seconds": record.seconds,
            "gain": record.gain,
            "schedule": record.chosen,
            "space": result.space,
            "known": result.known,
            "measured": result.measured,
            "bad": sum(f.status != MEASURED for f in record.candidates.values()),
            "complete": result.complete,
            "search_seconds": result.seconds,
        }


@dataclass(frozen=True)
class Report:
    """A report. kernels: the searched ones, in order; skipped: (name, reason) of kernels that can't
    be searched; wanted: the number of kernels to tune. interrupted: by Ctrl-C."""

    kernels: tuple[TunedKernel, ...]
    skipped: tuple[tuple[str, str], ...]
    wanted: int
    interrupted: bool = False

    @property
    def gain(self) -> float:
        """The speedup of all launches together."""
        before = after = 0.0
        for each in self.kernels:
            seconds = each.record.default_seconds
            if seconds is not None:
                before += each.launched.count * seconds
                after += each.launched.count * (each.record.seconds or seconds)
        return before / after if after else 1.0

    @property
    def measured(self) -> int:
        return sum(k.result.measured for k in self.kernels)

    def data(self) -> dict[str, Any]:
        """The report as plain data."""
        return {
            "kernels": [k.data() for k in self.kernels],
            "skipped": [{"name": name, "reason": reason} for name, reason in self.skipped],
            "wanted": self.wanted,
            "interrupted": self.interrupted,
            "measured": self.measured,
            "gain": self.gain,
        }

    def table(self) -> Any:
        """The report as a rich table."""
        table = _table("kernel", "launches", "default", "best", "gain", "schedule", "tried")
        for each in self.kernels:
            result, record = each.result, each.record
            table.add_row(
                _named(record),
                str(each.launched.count),
                time_text(record.default_seconds),
                time_text(record.seconds),
                gain_text(record),
                options_text(record.chosen),
                f"{result.known} of {result.space}" + ("" if result.complete else ", to go on"),
            )
        return table

    def summary(self) -> str:
        """The lines below the table."""
        done = sum(k.result.complete for k in self.kernels)
        lines = f"{done} of {self.wanted} kernels tuned, {self.measured} candidates measured"
        if self.kernels:
            lines += f"; together {self.gain:.2f} times as fast as by default"
        for name, reason in self.skipped:
            lines += f"\nskipped {name}: {reason}"
        if self.interrupted:
            lines += "\ninterrupted: the best until then is kept, run it again to go on"
        elif done + len(self.skipped) < self.wanted:
            lines += "\nout of time: run it again to go on"
        return lines

    def __str__(self) -> str:
        return f"{plain(self.table())}{self.summary()}"


def records_table(records: Iterable[Record]) -> Any:
    """The records of a database as a rich table."""
    table = _table("kernel", "sizes", "device", "default", "best", "gain", "schedule", "search")
    for record in records:
        table.add_row(
            _named(record),
            sizes_text(record.key.sizes),
            record.key.device,
            time_text(record.default_seconds),
            time_text(record.seconds),
            gain_text(record),
            options_text(record.chosen),
            record.effort or "to go on",
        )
    return table


def _named(record: Record) -> str:
    return f"{record.about.name} {record.about.dtype}"


def _table(*columns: str) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE)
    for name in columns:
        right = name in ("launches", "default", "best", "gain")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def plain(table: Any, width: int = 160) -> str:
    """A rich table as text, without colours."""
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(table)
    return out.getvalue()


def time_text(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def gain_text(record: Record) -> str:
    return "-" if record.seconds is None else f"{record.gain:.2f}"


def options_text(options: Options | None) -> str:
    """A schedule as short text."""
    if options is None:
        return "-"
    if not options:
        return "default"
    return " ".join(f"{k}={_short(v)}" for k, v in options.items())


def _short(value: Any) -> str:
    return "x".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def sizes_text(sizes: tuple[int, ...]) -> str:
    """The first few sizes of a kernel, which are its extents."""
    shown = " ".join(map(str, sizes[:4]))
    return shown + (" …" if len(sizes) > 4 else "")


def candidates_table(record: Record, top: int) -> Any:
    """The candidates of a kernel, the best first and the bad ones last, as a rich table."""
    table = _table("schedule", "status", "best", "spread", "rounds", "reason")
    order = sorted(
        record.candidates.items(),
        key=lambda each: (each[1].status in BAD, each[1].seconds or 0.0),
    )
    for options, found in order[:top]:
        spread = f"{found.spread:.0%}" if found.samples else ""
        table.add_row(
            options_text(json.loads(options)),
            found.status,
            time_text(found.seconds),
            spread,
            str(found.samples or ""),
            found.reason,
        )
    return table


def ranking_table(rankings: Iterable[Ranking]) -> Any:
    """Predictions, as a rich table."""
    table = _table("kernel", "default", "best", "gain", "schedule", "of", "compiled", "took")
    for each in rankings:
        (options, seconds), *_ = each.first
        table.add_row(
            f"{each.about.name} {each.about.dtype}",
            time_text(each.default),
            time_text(seconds),
            f"{each.default / seconds:.2f}",
            options_text(options),
            str(each.about.space),
            str(each.compiled),
            time_text(each.seconds),
        )
    return table


def ranking_data(ranking: Ranking) -> dict[str, Any]:
    """A ranking as plain data, with its ten best schedules."""
    return {
        **asdict(ranking.about),
        "default_seconds": ranking.default,
        "compiled": ranking.compiled,
        "ranking_seconds": ranking.seconds,
        "first": [{"schedule": o, "seconds": s} for o, s in ranking.first[:10]],
    }
