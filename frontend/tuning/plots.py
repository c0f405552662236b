"""Plots of searches as PNG files."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.codegen.lower.external import Autotuned
from tilewright.codegen.schedule import work as needed
from tilewright.runtime import devices
from tilewright.runtime.results.record import MEASURED, Record

from .report import Report, TunedKernel, options_text

_TILE = (("block_m", "block_n"), ("rows", "columns"), ("vectors", "work"), ("block", "num_warps"))
"""Pairs of choices for a map. The first pair that a kernel has is used."""
_PEAK, _COPY = 1024, 1 << 24
"""Sizes of the product and of the copy that measure a CPU's roof."""


def write(report: Report, folder: str | Path) -> list[Path]:
    """Plot each kernel's search over time and a map of its space, and one roofline of all kernels,
    to files in `folder`, which is made if needed. Returns their paths.

    ImportError where matplotlib is not installed.
    """
    from matplotlib.figure import Figure

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    out = []

    def save(name: str, draw: Callable[[Any], bool]) -> None:
        figure = Figure(figsize=(7, 4.5), layout="constrained")
        if draw(figure.subplots()):
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=120)
            out.append(path)

    for i, each in enumerate(report.kernels):
        name = f"{i:02d}_{re.sub('[^A-Za-z0-9_]+', '_', each.record.about.name)[:40]}"
        save(f"{name}_search", partial(_search, kernel=each))
        save(f"{name}_space", partial(_space, record=each.record))
    save("roofline", partial(_roofline, kernels=report.kernels))
    return out


def _search(axes: Any, kernel: TunedKernel) -> bool:
    """Plot the measurements over time, and the best so far."""
    trail, record = kernel.result.progress.trail, kernel.record
    if not trail or not record.default_seconds:
        return False
    when, seconds = zip(*trail)
    taken = np.array(seconds) * 1e3
    axes.plot(when, taken, "o", ms=4, alpha=0.6, label="candidates")
    axes.step(when, np.minimum.accumulate(taken), where="post", label="best so far")
    axes.axhline(record.default_seconds * 1e3, color="gray", ls="--", label="default")
    axes.set_yscale("log")
    axes.set_xlabel(f"seconds; {kernel.result.known} of {kernel.result.space} candidates")
    axes.set_ylabel("milliseconds")
    axes.set_title(f"{record.about.name}: {record.gain:.2f} times as fast as by default")
    axes.legend()
    return True


def _space(axes: Any, record: Record) -> bool:
    """Plot the least time for each pair of values of two choices."""
    found = [
        (json.loads(options), f.seconds)
        for options, f in record.candidates.items()
        if f.status == MEASURED and f.seconds
    ]
    for across, down in _TILE:
        points = {(o[across], o[down]) for o, _ in found if across in o and down in o}
        xs, ys = (sorted({p[i] for p in points}) for i in range(2))
        if len(xs) > 1 and len(ys) > 1:
            break
    else:
        return False
    grid = np.full((len(ys), len(xs)), np.nan)
    for options, seconds in found:
        if across in options and down in options:
            at = ys.index(options[down]), xs.index(options[across])
            grid[at] = np.nanmin([grid[at], seconds * 1e3])
    picture = axes.imshow(grid, origin="lower", aspect="auto", cmap="viridis_r")
    axes.set_xticks(range(len(xs)), xs)
    axes.set_yticks(range(len(ys)), ys)
    axes.set_xlabel(across)
    axes.set_ylabel(down)
    axes.figure.colorbar(picture, label="milliseconds, the best of the other choices")
    axes.set_title(f"{record.about.name}: best {options_text(record.chosen)}"[:80])
    return True


def _roofline(axes: Any, kernels: Sequence[TunedKernel]) -> bool:
    """Plot the kernels under the machine's roofline."""
    placed = []
    for each in kernels:
        kernel, seconds = each.launched.kernel, each.record.seconds
        if isinstance(kernel, Autotuned):
            continue  # its operations aren't known
        least = needed(kernel)
        operations = least.flops or least.scalar
        if seconds and operations and least.bytes:
            placed.append((operations / least.bytes, operations / seconds, each))
    if not placed:
        return False
    bandwidth, peak = _roof(placed[0][2].launched.device)
    low = min(p[0] for p in placed) / 4
    high = max(max(p[0] for p in placed), peak / bandwidth) * 4
    along = np.geomspace(low, high, 200)
    axes.loglog(along, np.minimum(along * bandwidth, peak) / 1e9, color="gray")
    for intensity, rate, each in placed:
        axes.plot(intensity, rate / 1e9, "o", label=each.record.about.name[:30])
    axes.set_xlabel("operations a byte")
    axes.set_ylabel("billion operations a second")
    axes.set_title(f"roof: {bandwidth / 1e9:.0f} GB/s, {peak / 1e9:.0f} GFLOP/s")
    axes.legend(fontsize="small")
    return True


def _roof(device: str) -> tuple[float, float]:
    """Peak (bytes, operations) a second: of a GPU by its chip, of a CPU as NumPy reaches them."""
    if device != "cpu":
        chip = devices.get(device).target.chip
        return chip.bandwidth, max(chip.tensor.values(), default=chip.vector["float32"])
    a = np.ones((_PEAK, _PEAK), np.float32)
    x, y = np.ones(_COPY, np.float32), np.empty(_COPY, np.float32)
    product = _least(lambda: a @ a)
    copy = _least(lambda: np.copyto(y, x))
    return 2 * x.nbytes / copy, 2 * _PEAK**3 / product


def _least(run: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)
