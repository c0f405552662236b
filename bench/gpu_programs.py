"""Ordinary programs on a GPU by tilewright, beside PyTorch on the same machine.

    python bench/gpu_programs.py [--json FILE] [--minutes 4] [--device cuda] [PROGRAM ...]

The programs are those of `bench/gpu_tasks`: training loops, work on tensors, the card's own
interfaces, packages of the ecosystem. PROGRAM is a part of names. Each program has a process with
PyTorch and one where `import torch` means tilewright. Each has a time limit, so that a program that
hangs or dies costs no other one.

First the values of some steps are compared, many programs at a time, and the first step is timed
(with the others' load, so it is rough). Then one program after the other has its warm step timed,
on an idle machine: wall time with the values read, the median. Rows are saved one by one. Where
there is no PyTorch for the device, only our side runs, and nothing is compared.
"""

from __future__ import annotations

import argparse
import faulthandler
import importlib
import json
import os
import pickle
import queue
import select
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import timing

PARTS = ("loops", "tensors", "machine", "packages")
SIDES = ("ours", "torch")
COLUMNS = ("name", "ours_ms", "torch_ms", "ratio", "ours_first_s", "torch_first_s", "answer")
TURN = 0.25
"""Seconds of a side's turn when warm steps are timed."""
KEPT = 3000
"""Characters of an error's end that a row keeps."""


def programs() -> dict[str, Any]:
    tasks = importlib.import_module("gpu_tasks")
    for part in PARTS:
        importlib.import_module(f"gpu_tasks.{part}")
    found: dict[str, Any] = tasks.PROGRAMS
    return found


# ---- in a program's process ----------------------------------------------------------------------


def plain(torch: Any, value: Any) -> Any:
    """A value without tensors: ("tensor", dtype, kind of device, array), lists, dicts, the rest."""
    if isinstance(value, torch.Tensor):
        kept = value.detach()
        if kept.layout != torch.strided:
            kept = kept.to_dense()
        host = kept.cpu().resolve_conj()
        if host.dtype in (torch.bfloat16, torch.float16):
            host = host.float()
        return "tensor", str(value.dtype), value.device.type, np.array(host.numpy())
    if isinstance(value, dict):
        return {str(k): plain(torch, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(torch, v) for v in value]
    return value


def serve(options: argparse.Namespace) -> None:
    """Run one program's steps and write their values into a file; then time the step as often as a
    line of the standard input says for how many seconds."""
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is no answer
    faulthandler.enable()
    faulthandler.dump_traceback_later(0.9 * options.limit)
    meaning: Any = nullcontext()
    if options.side == "ours":
        from tilewright.as_torch.distribution import torch_means_tilewright

        meaning = torch_means_tilewright()
    with meaning:
        import torch

        program = programs()[options.programs[0]]
        # Convolutions of PyTorch are rounded to TF32 by default, which no comparison stands.
        torch.backends.cudnn.allow_tf32 = False
        card = options.device != "cpu"
        begun = time.perf_counter()
        step = program.make(torch, options.device)
        values, first = [], 0.0
        for _ in range(program.steps):
            values.append(plain(torch, step()))
            first = first or time.perf_counter() - begun
        with open(options.values, "wb") as file:
            pickle.dump(values, file)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps({"first_s": first, **counts(options)}), file=answers, flush=True)
        for line in sys.stdin:
            times: list[float] = []
            end = time.perf_counter() + float(line)
            while len(times) < 3 or time.perf_counter() < end:
                begun = time.perf_counter()
                step()
                if card:
                    torch.cuda.synchronize()
                times.append(time.perf_counter() - begun)
                if len(times) >= 3 and times[-1] > 10 * float(line):
                    break
            print(json.dumps({"ms": statistics.median(times) * 1e3}), file=answers, flush=True)


def counts(options: argparse.Namespace) -> dict[str, Any]:
    """What our device couldn't do as it should."""
    if options.side != "ours" or options.device == "cpu":
        return {}
    import tilewright as tw
    from tilewright.runtime import devices

    card: Any = devices.get(tw.zeros((), device=options.device)._typed()[2])
    found = {"fallbacks": card.fallbacks, "refused": card.refused}
    return {name: value if isinstance(value, int) else str(value) for name, value in found.items()}


# ---- comparison ----------------------------------------------------------------------------------


def differences(ours: Any, theirs: Any, tolerance: float, at: str = "") -> Iterator[str]:
    """Where our values aren't PyTorch's: other numbers, shapes, dtypes, devices."""
    if isinstance(theirs, tuple) and isinstance(ours, tuple):
        if ours[1:3] != theirs[1:3]:
            yield f"{at}: {ours[1:3]}, PyTorch has {theirs[1:3]}"
        else:
            yield from unequal(ours[3], theirs[3], tolerance, at)
    elif isinstance(theirs, dict) and isinstance(ours, dict) and ours.keys() == theirs.keys():
        for key in theirs:
            yield from differences(ours[key], theirs[key], tolerance, f"{at}.{key}")
    elif isinstance(theirs, list) and isinstance(ours, list) and len(ours) == len(theirs):
        for i, pair in enumerate(zip(ours, theirs)):
            yield from differences(*pair, tolerance, f"{at}[{i}]")
    elif isinstance(theirs, float) and isinstance(ours, float):
        yield from unequal(np.array(ours), np.array(theirs), tolerance, at)
    elif type(ours) is not type(theirs) or ours != theirs:
        yield f"{at}: {ours!r}, PyTorch has {theirs!r}"[:400]


def unequal(ours: np.ndarray, theirs: np.ndarray, tolerance: float, at: str) -> Iterator[str]:
    if ours.shape != theirs.shape:
        yield f"{at}: shape {ours.shape}, PyTorch has {theirs.shape}"
        return
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    if same.all():
        return
    if theirs.dtype.kind in "fc":
        finite = np.abs(theirs[np.isfinite(theirs)])
        with np.errstate(invalid="ignore", over="ignore"):
            same |= np.abs(ours - theirs) <= tolerance * max(1e-3, float(finite.max(initial=0)))
    if not same.all():
        place = tuple(int(i) for i in np.argwhere(~same)[0])
        yield (
            f"{at}: {np.count_nonzero(~same)} of {same.size} elements differ, first at {place}: "
            f"{ours[place]}, PyTorch has {theirs[place]}"
        )


# ---- the table -----------------------------------------------------------------------------------


class Side:
    """The process of one side of a program."""

    def __init__(
        self, name: str, side: str, folder: Path, options: argparse.Namespace, alone: bool
    ):
        self.values, self.log = folder / f"{side}.pickle", folder / f"{side}.log"
        environment = {**os.environ, "GPU_PROGRAMS": str(folder), "GPU_PROGRAMS_SIDE": side}
        environment.pop("TW_TIER", None)  # as users have it
        environment |= {"GPU_PROGRAMS_ALONE": "1"} if alone else {}
        environment |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment.setdefault("OMP_NUM_THREADS", "2")
        environment["PYTHONPATH"] = os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))
        command = [sys.executable, __file__, name, "--serve", "--side", side]
        command += ["--device", options.device, "--values", str(self.values)]
        command += ["--limit", str(options.limit)]
        with self.log.open("wb") as log:
            self.child = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=folder,
            )

    def answer(self, limit: float) -> dict[str, Any]:
        """Its next answer; a RuntimeError if it has ended or takes longer."""
        assert self.child.stdout is not None
        ready, _, _ = select.select([self.child.stdout], [], [], limit)
        line = self.child.stdout.readline() if ready else b""
        if line:
            found: dict[str, Any] = json.loads(line)
            return found
        self.end()
        what = f"exit status {self.child.returncode}" if ready else f"no answer in {limit:.0f} s"
        raise RuntimeError(f"{what}: {self.log.read_text(errors='replace').strip()[-KEPT:]}")

    def time(self, seconds: float) -> float:
        assert self.child.stdin is not None
        self.child.stdin.write(f"{seconds}\n".encode())
        self.child.stdin.flush()
        return float(self.answer(60 * seconds + 20)["ms"])

    def end(self) -> None:
        """Kill it: it has told all that it had to."""
        self.child.kill()
        self.child.wait()
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()


class Benchmark:
    def __init__(self, options: argparse.Namespace, folder: Path, sides: tuple[str, ...]):
        self.options, self.folder, self.sides = options, folder, sides
        self.rows: dict[str, dict[str, Any]] = {}
        self.alive: dict[str, dict[str, Side]] = {}
        self.started: list[Side] = []
        self.lock = threading.Lock()
        self.end = time.monotonic() + 60 * options.minutes

    def add(self, row: dict[str, Any]) -> None:
        with self.lock:
            self.rows[row["name"]] = row
            timing.save(list(self.rows.values()), self.options)
            figures = "  ".join(f"{k} {timing.text(v)}" for k, v in row.items() if k != "name")
            print(f"{row['name']}: {figures}", file=sys.stderr, flush=True)

    def check_all(self, chosen: list[str]) -> None:
        """Check programs, as many at a time as there may be processes."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        for name in chosen:
            waiting.put(name)

        def work() -> None:
            while True:
                try:
                    name = waiting.get_nowait()
                except queue.Empty:
                    return
                if time.monotonic() > self.end:
                    self.add({"name": name, "answer": "no time was left"})
                    continue
                self.add({"name": name, **self.check(name)})

        workers = max(1, self.options.processes // len(self.sides))
        threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def check(self, name: str) -> dict[str, Any]:
        """Run a program's first steps on each side and compare their values."""
        found: dict[str, Any] = {}
        folder = Path(tempfile.mkdtemp(dir=self.folder))
        limit = max(5.0, min(self.options.limit, self.end - time.monotonic()))
        end, alone = time.monotonic() + limit, len(self.sides) == 1
        sides = {s: Side(name, s, folder, self.options, alone) for s in self.sides}
        self.started += sides.values()
        for which, side in sides.items():
            try:
                answer = side.answer(max(0.1, end - time.monotonic()))
                found |= {f"{which}_{key}": value for key, value in answer.items()}
            except RuntimeError as error:
                found["answer"] = f"{which}: {error}"
                break
        if "answer" not in found:
            found["answer"] = "ran" if alone else self.compared(name, sides)
        fine = found["answer"] in ("ran", "right") and self.options.turns
        if fine and len(self.alive) < self.options.timed:
            self.alive[name] = sides
        else:
            for side in sides.values():
                side.end()
        return found

    def compared(self, name: str, sides: dict[str, Side]) -> str:
        ours, theirs = (pickle.loads(sides[s].values.read_bytes()) for s in SIDES)
        found = list(differences(ours, theirs, programs()[name].tolerance))
        return "; ".join(found[:6])[:KEPT] if found else "right"

    def time_all(self) -> None:
        """Time the warm steps of the programs whose values are right, one after the other."""
        for name, sides in self.alive.items():
            if time.monotonic() > self.end:
                break
            seen: dict[str, list[float]] = {which: [] for which in sides}
            row = self.rows[name]
            try:
                for turn in range(self.options.turns + 1):
                    for which, side in sides.items():
                        ms = side.time(TURN)
                        seen[which] += [ms] * (turn > 0)  # the first turn warms up
            except RuntimeError as error:
                row["answer"] = f"timed: {error}"
            row |= {f"{s}_ms": statistics.median(times) for s, times in seen.items() if times}
            if all(f"{s}_ms" in row for s in SIDES):
                row["ratio"] = row["torch_ms"] / row["ours_ms"]
            self.add(row)
            for side in sides.values():
                side.end()

    def close(self) -> None:
        for side in self.started:
            side.end()


def has_torch(device: str) -> bool:
    """Whether PyTorch itself is there, and finds the device."""
    ask = "import torch; assert not hasattr(torch.version, 'tilewright')"
    if device != "cpu":
        ask += "; assert torch.cuda.is_available()"
    return subprocess.run([sys.executable, "-c", ask], capture_output=True).returncode == 0


def main() -> None:
    parser = timing.parser((__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4, help="after which nothing is begun")
    parser.add_argument("--processes", type=int, default=14, help="at a time, for the checks")
    parser.add_argument("--limit", type=float, default=75, help="seconds of a program's check")
    parser.add_argument("--turns", type=int, default=2, help="turns in timing; 0 times nothing")
    parser.add_argument("--timed", type=int, default=30, help="programs that are timed, at most")
    parser.add_argument("--device", default="cuda", help="which device")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--side", choices=SIDES, help=argparse.SUPPRESS)
    parser.add_argument("--values", help=argparse.SUPPRESS)
    parser.add_argument("programs", nargs="*", help="programs whose name contains one of these")
    options = parser.parse_args()
    if options.serve:
        try:
            serve(options)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        return
    chosen = [
        name
        for name, program in programs().items()
        if (not program.card or options.device != "cpu")
        and (not options.programs or any(p.lower() in name.lower() for p in options.programs))
    ]
    sides = SIDES if has_torch(options.device) else SIDES[:1]
    if len(sides) == 1:
        print("There is no PyTorch for this device: nothing is compared", file=sys.stderr)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-programs-")))
        benchmark = Benchmark(options, folder, sides)
        stack.callback(benchmark.close)
        try:
            benchmark.check_all(chosen)
            benchmark.time_all()
        except KeyboardInterrupt:
            print("interrupted: what was measured is kept", file=sys.stderr)
    rows = [
        {**row, "answer": row["answer"].splitlines()[-1][:200]} for row in benchmark.rows.values()
    ]
    timing.table(rows, COLUMNS)
    wrong = [row["name"] for row in rows if row["answer"] not in ("ran", "right")]
    print(f"{len(rows) - len(wrong)} of {len(rows)} programs are right")


if __name__ == "__main__":
    main()
