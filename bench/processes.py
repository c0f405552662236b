"""Measurements that need their own process: import, first step, peak memory, growth, latency.

    python bench/processes.py import|first|peak|growth|latency tilewright|torch [ARGUMENT ...]

prints one JSON object. `measure` runs that in a child process.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import subprocess
import sys
import time
from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def measure(
    what: str, framework: str, *more: str, cache: str | None = None, tier: str = "auto"
) -> dict[str, float]:
    """The result of a fresh process. cache: the folder of its caches. tier: its TW_TIER, by default
    a user's."""
    env = {**os.environ, "TW_TIER": tier}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages have their bytecode
    if cache is not None:
        env["XDG_CACHE_HOME"] = cache
        env["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(cache, "inductor")
    command = [sys.executable, os.path.join(HERE, "processes.py"), what, framework, *more]
    child = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command[1:])} failed:\n{child.stderr}")
    found: dict[str, float] = json.loads(child.stdout.splitlines()[-1])
    return found


def _memory(field: str) -> float:
    """A field of the process's memory status (VmRSS: current, VmHWM: peak), in MB."""
    with open("/proc/self/status") as f:
        line = next(line for line in f if line.startswith(field))
    return int(line.split()[1]) / 1024


def _import(framework: str) -> dict[str, float]:
    before, start = _memory("VmRSS"), time.perf_counter()
    importlib.import_module(framework)
    return {"ms": (time.perf_counter() - start) * 1e3, "mb": _memory("VmRSS") - before}


def first_step(torch: Any, compiled: bool = False) -> float:
    """Seconds of the first training step of a 2-layer MLP in this process."""
    import models

    start = time.perf_counter()
    model = models.mlp(torch, 64, 128, 10)
    optimizer = torch.optim.Adam(model.parameters())
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    wrapped = torch.compile(model) if compiled else model
    loss = torch.nn.functional.cross_entropy(wrapped(x), y)
    loss.backward()
    optimizer.step()
    loss.item()
    return time.perf_counter() - start


def _first(framework: str, mode: str = "eager") -> dict[str, float]:
    torch = importlib.import_module(framework)
    for part in ("nn", "optim"):
        importlib.import_module(f"{framework}.{part}")
    return {"ms": first_step(torch, mode == "compile") * 1e3}


def _peak(framework: str, model: str) -> dict[str, float]:
    """The peak memory of the process in later training steps, in all and beyond its memory before
    the model."""
    torch = importlib.import_module(framework)
    importlib.import_module(f"{framework}.nn")
    importlib.import_module(f"{framework}.optim")
    import workloads

    before = _memory("VmRSS")
    step = workloads.TRAINING[model](torch, lambda f: f).step
    for _ in range(3):
        float(step())
    gc.collect()
    with open("/proc/self/clear_refs", "w") as f:
        f.write("5")  # resets VmHWM
    for _ in range(3):
        float(step())
    peak = _memory("VmHWM")
    return {"mb": peak, "step_mb": peak - before}


def _growth(framework: str, name: str, rounds: str) -> dict[str, float]:
    import growth

    return growth.grown(framework, name, rounds)


def _latency(framework: str, *arguments: str) -> dict[str, float]:
    import latency

    return latency.measured(framework, *arguments)


def main() -> None:
    what, *arguments = sys.argv[1:]
    kinds = {
        "import": _import,
        "first": _first,
        "peak": _peak,
        "growth": _growth,
        "latency": _latency,
    }
    print(json.dumps(kinds[what](*arguments)))


if __name__ == "__main__":
    sys.path.insert(0, HERE)
    main()
