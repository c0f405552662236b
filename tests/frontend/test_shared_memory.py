"""Tensors that processes share: models trained by several at once, queues, spawned processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import sys
import tilewright as torch
import tilewright.multiprocessing as mp
from tilewright import nn


def train(rank, model, steps, results, go_on):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.linspace(-1, 1, 16).view(-1, 1)
    for _ in range(200):  # a step that reads, waits and writes undoes what the other one did then
        optimizer.zero_grad()
        ((model(x) - 3 * x - 1) ** 2).mean().backward()
        optimizer.step()
    steps[rank] += 200
    results.put((rank, steps, torch.full((2,), float(rank))))
    go_on.wait()


def write(rank, t):
    t[rank] = rank + 5


def main():
    mp.set_start_method(sys.argv[1])
    model = nn.Linear(1, 1)
    model.share_memory()
    assert all(p.is_shared() and p.is_leaf for p in model.parameters())
    steps, results, go_on = torch.zeros(2).share_memory_(), mp.Queue(), mp.Event()
    arguments = (model, steps, results, go_on)
    processes = [mp.Process(target=train, args=(rank, *arguments)) for rank in range(2)]
    for p in processes:
        p.start()
    got = sorted((results.get() for _ in range(2)), key=lambda g: g[0])
    assert [g[2].tolist() for g in got] == [[0, 0], [1, 1]]  # by value
    assert steps.tolist() == [200, 200] and got[0][1].is_shared()
    got[1][1].fill_(7)
    assert steps.tolist() == [7, 7]
    go_on.set()
    for p in processes:
        p.join()
    assert abs(model.bias.item() - 1) < 0.05, model.bias

    part = torch.arange(6.0).share_memory_()[2:]
    results.put(part)
    seen = results.get()
    seen += 1
    assert part.tolist() == [3, 4, 5, 6]
    results.put(nn.Parameter(torch.ones(2)).share_memory_())
    parameter = results.get()
    assert type(parameter) is nn.Parameter and parameter.requires_grad
    if sys.argv[1] == "spawn":
        t = torch.zeros(3).share_memory_()
        mp.spawn(write, args=(t,), nprocs=2)
        assert t.tolist() == [5, 6, 0]


if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_processes_train_one_model(tmp_path: Path, method: Any) -> None:
    script = tmp_path / "together.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script), method],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr


WRITERS = """
import os
import tilewright as torch

t, grid = torch.zeros(2).share_memory_(), torch.zeros(3, 2).share_memory_()
leaf = torch.nn.Parameter(torch.zeros(2)).share_memory_()
child = os.fork()
rank = 0 if child else 1
for i in range(2000):
    t[rank] += 1
    grid[:, rank] -= 1
    with torch.no_grad():
        leaf[rank:].view(-1)[:1].add_(1)
if not child:
    os._exit(0)
os.waitpid(child, 0)
assert t.tolist() == [2000, 2000], t
assert grid.tolist() == [[-2000, -2000]] * 3, grid
assert leaf.tolist() == [2000, 2000] and leaf.is_leaf, leaf
"""


def test_a_write_to_a_part_leaves_the_rest_to_other_processes() -> None:
    done = subprocess.run([sys.executable, "-c", WRITERS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_tensor_with_a_history_stays_in_its_process() -> None:
    import tilewright as tw
    from tilewright import multiprocessing

    here, there = multiprocessing.Pipe()
    here.send(tw.ones(2, requires_grad=True))
    assert there.recv().requires_grad
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        here.send(tw.ones(2, requires_grad=True) * 2)


FAILING = """
import torch
import torch.multiprocessing as mp

def fail(place):
    if place:
        raise ValueError("no " * 100_000)  # more than a pipe holds

if __name__ == "__main__":
    try:
        mp.spawn(fail, nprocs=2)
    except mp.ProcessRaisedException as error:
        print(error.error_index, len(str(error)) > 300_000, "ValueError: no no" in str(error))
    context = mp.spawn(print, nprocs=1, join=False)
    while not context.join():
        pass
"""


def test_a_long_exception_of_a_process_arrives(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        FAILING.replace("import torch", "import tilewright as torch", 1).replace(
            "import torch.multi", "import tilewright.multi"
        )
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.splitlines() == ["1 True True", "0"]
