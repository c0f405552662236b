"""A program of several processes: `python together.py LIBRARY RESULTS`, with what torchrun sets.

Each process writes what it has computed to RESULTS.RANK as JSON.
"""

from __future__ import annotations

import contextlib
import datetime
import importlib
import json
import os
import sys
from typing import Any

lib: Any = importlib.import_module(sys.argv[1])
dist: Any = importlib.import_module(f"{sys.argv[1]}.distributed")
nn = lib.nn
results: dict[str, Any] = {}


def plain(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    return value.tolist() if isinstance(value, lib.Tensor) else value


def case(function: Any) -> None:
    try:
        results[function.__name__] = plain(function())
    except (ValueError, RuntimeError) as error:
        results[function.__name__] = type(error).__name__


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()


def own(*shape: int) -> Any:
    count = 1
    for n in shape:
        count *= n
    return (lib.arange(count, dtype=lib.float32).reshape(shape) + 1) * (rank + 1)


@case
def facts() -> Any:
    return rank, size, dist.is_initialized(), dist.get_backend(), dist.is_available()


@case
def all_reduce() -> Any:
    out = []
    for op in ("SUM", "PRODUCT", "MIN", "MAX"):
        x = own(3)
        dist.all_reduce(x, getattr(dist.ReduceOp, op))
        out.append(x)
    bits = lib.tensor([rank, 6])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    large = own(5003)
    dist.all_reduce(large)
    return out, bits, large.sum(), large[-1]


@case
def later() -> Any:
    x, y = own(4), own(2)
    first = dist.all_reduce(x, async_op=True)
    second = dist.broadcast(y, 1, async_op=True)
    second.wait()
    first.wait()
    return x, y, first.is_completed()


@case
def moves() -> Any:
    a, b, c = own(2), own(2), lib.zeros(2)
    dist.broadcast(a, src=1)
    dist.reduce(b, dst=0)
    gathered = [lib.zeros(2) for _ in range(size)]
    dist.all_gather(gathered, own(2))
    at_two = [lib.zeros(2) for _ in range(size)] if rank == 2 else None
    dist.gather(own(2), at_two, dst=2)
    dist.scatter(c, [own(2) + i for i in range(size)] if rank == 0 else None, src=0)
    return a, b if rank == 0 else 0, gathered, at_two, c


@case
def wholes() -> Any:
    joined, part = lib.zeros(size * 2), lib.zeros(2)
    dist.all_gather_single(joined, own(2))
    dist.reduce_scatter_single(part, own(size * 2))
    swapped = lib.zeros(size)
    dist.all_to_all_single(swapped, own(size))
    return joined, part, swapped


@case
def messages() -> Any:
    x = lib.zeros(3)
    if rank == 0:
        dist.send(own(3), 1)
        dist.send(own(3) * 10, 1, tag=7)
    if rank == 1:
        y = lib.zeros(3)
        sender = dist.recv(x)
        dist.recv(y, 0, tag=7)
        return x, y, sender
    works = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, own(2), 2 - rank), dist.P2POp(dist.irecv, x[:2], 2 - rank)]
    )
    for work in works:
        work.wait()
    return x


@case
def objects() -> Any:
    every, parts = [None] * size, [None]
    dist.all_gather_object(every, {"rank": rank})
    shared = ["a", rank] if rank == 1 else [None, None]
    dist.broadcast_object_list(shared, src=1)
    dist.scatter_object_list(parts, [[i] for i in range(size)] if rank == 0 else None, src=0)
    collected = [None] * size if rank == 0 else None
    dist.gather_object(rank * 2, collected)
    return every, shared, parts, collected


@case
def groups() -> Any:
    pair = dist.new_group([0, 2])
    x = own(2)
    if rank != 1:
        dist.all_reduce(x, group=pair)
        return x, dist.get_rank(pair), dist.get_world_size(pair), dist.get_process_group_ranks(pair)
    return x, dist.get_rank(pair), dist.get_world_size(pair)


@case
def twice() -> Any:
    dist.init_process_group("gloo")


@case
def no_such_rank() -> Any:
    dist.broadcast(own(2), src=size + 4)


def model() -> Any:
    lib.manual_seed(rank)
    made = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 1))
    with lib.no_grad():
        for i, p in enumerate(made.parameters()):
            p.copy_(lib.linspace(-1, 1, p.numel()).reshape(p.shape) * (i + 1 + rank))
    return made


@case
def data_parallel() -> Any:
    net = nn.parallel.DistributedDataParallel(model())
    optimizer = lib.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for step in range(3):
        x = lib.sin(own(6, 4) + step)
        if step == 1:
            with net.no_sync():
                (net(x * 0.5) ** 2).mean().backward()
        (net(x) ** 2).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return {k: v for k, v in net.state_dict().items()}, sorted(net.state_dict())


@case
def unused_parameters() -> Any:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(2, 1), nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x: Any) -> Any:
            return self.a(x) if rank else self.b(x)

    net = nn.parallel.DistributedDataParallel(Two(), find_unused_parameters=True)
    net(own(3, 2)).sum().backward()
    grads = [p.grad for p in net.module.parameters()]
    return [0 if g is None else g for g in grads]


def small_net() -> Any:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))
    with lib.no_grad():
        for i, p in enumerate(net.parameters()):
            p.copy_(lib.sin(lib.arange(float(p.numel())).reshape(p.shape) + i) * (rank + 1))
    return net


def batches(count: int) -> Any:
    return [lib.cos(lib.arange(12.0).reshape(4, 3) * (rank + 1) + i) for i in range(count)]


def uneven(**options: Any) -> Any:
    net = nn.parallel.DistributedDataParallel(small_net())
    optimizer = lib.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    with net.join(**options):
        for i, x in enumerate(batches(2 + rank)):
            with net.no_sync() if i == 0 else contextlib.nullcontext():
                net(x).square().mean().backward()
            if i:
                optimizer.step()
                optimizer.zero_grad()
    return net.state_dict()


@case
def join_uneven_inputs() -> Any:
    return uneven(), uneven(divide_by_initial_world_size=False)


@case
def join_throws() -> Any:
    return uneven(throw_on_early_termination=True)


def hooked(state: Any, hook: Any) -> Any:
    net = nn.parallel.DistributedDataParallel(small_net())
    net.register_comm_hook(state, hook)
    net(batches(1)[0]).square().mean().backward()
    return [p.grad for p in net.parameters()]


@case
def gradient_hooks() -> Any:
    path = f"{sys.argv[1]}.distributed.algorithms.ddp_comm_hooks"
    hooks = importlib.import_module(f"{path}.default_hooks")
    later = importlib.import_module(f"{path}.post_localSGD_hook")

    def doubled(state, bucket):  # type: ignore[no-untyped-def]  # PyTorch reads the types
        state.append(sum(g.numel() for g in bucket.gradients()) == bucket.buffer().numel())
        return hooks.allreduce_hook(None, bucket).then(lambda made: made.value() * 2)

    seen: list[bool] = []
    local = later.PostLocalSGDState(None, dist.new_subgroups(1)[0], 0)
    return (
        hooked(seen, doubled),
        all(seen),
        hooked(None, hooks.allreduce_hook),
        [g.round(decimals=2) for g in hooked(None, hooks.fp16_compress_hook)],
        [g.round(decimals=1) for g in hooked(None, hooks.bf16_compress_hook)],
        [
            g.round(decimals=2)
            for g in hooked(None, hooks.fp16_compress_wrapper(hooks.allreduce_hook))
        ],
        hooked(local, later.post_localSGD_hook),
    )


@case
def spread_states() -> Any:
    net = nn.parallel.DistributedDataParallel(small_net())
    spread = importlib.import_module(f"{sys.argv[1]}.distributed.optim").ZeroRedundancyOptimizer
    optimizer = spread(net.parameters(), optimizer_class=lib.optim.Adam, lr=0.1)
    schedule = lib.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for x in batches(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
        schedule.step()
    optimizer.consolidate_state_dict(to=1)
    saved = optimizer.state_dict() if rank == 1 else None
    again = spread(net.parameters(), optimizer_class=lib.optim.Adam, lr=1.0)
    box = [saved]
    dist.broadcast_object_list(box, src=1)
    again.load_state_dict(box[0])
    net(batches(1)[0]).square().mean().backward()
    again.step()
    states = sorted((int(k), sorted(v)) for k, v in box[0]["state"].items())
    return net.state_dict(), states, [g["lr"] for g in again.param_groups]


@case
def states_that_were_not_gathered() -> Any:
    spread = importlib.import_module(f"{sys.argv[1]}.distributed.optim").ZeroRedundancyOptimizer
    return spread(small_net().parameters(), optimizer_class=lib.optim.SGD, lr=0.1).state_dict()


@case
def parameters_averaged_now_and_then() -> Any:
    path = f"{sys.argv[1]}.distributed.algorithms.model_averaging.averagers"
    averagers = importlib.import_module(path)
    local = importlib.import_module(f"{sys.argv[1]}.distributed.optim").PostLocalSGDOptimizer
    net = small_net()
    optimizer = local(
        lib.optim.SGD(net.parameters(), 0.1), averagers.PeriodicModelAverager(2, warmup_steps=1)
    )
    for x in batches(3):
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return list(net.parameters()), optimizer.state_dict()["step"]


@case
def device_mesh() -> Any:
    made = importlib.import_module(f"{sys.argv[1]}.distributed.device_mesh")
    mesh = made.init_device_mesh("cpu", (1, size), mesh_dim_names=("dp", "tp"))
    x = own(2)
    dist.all_reduce(x, group=mesh.get_group("tp"))
    y = own(2)
    dist.all_reduce(y, group=mesh["dp"].get_group())
    return (
        mesh.mesh, list(mesh.shape), mesh.ndim, mesh.size(), mesh.size(1), mesh.mesh_dim_names,
        mesh.get_rank(), mesh.get_local_rank("tp"), mesh["dp"].get_local_rank(),
        mesh.get_coordinate(), x, y, mesh["tp"].mesh, repr(mesh), repr(mesh["tp"]),
        len(mesh.get_all_groups()), mesh["dp", "tp"] == mesh, mesh.device_type,
    )  # fmt: skip


@case
def samplers() -> Any:
    sampler = lib.utils.data.DistributedSampler(list(range(10)), shuffle=False)
    return list(sampler), len(sampler)


@case
def functional() -> Any:
    x = own(3).requires_grad_()
    functions = importlib.import_module(f"{sys.argv[1]}.distributed.nn.functional")
    y = functions.all_reduce(x * x)
    z = functions.all_gather(x * (rank + 1))
    (y.sum() * (rank + 1) + sum((i + 1) * t.sum() for i, t in enumerate(z))).backward()
    return y, z, x.grad


dist.barrier()
with open(f"{sys.argv[2]}.{rank}", "w") as file:
    json.dump(results, file)
dist.destroy_process_group()
assert not dist.is_initialized() and os.environ["RANK"] == str(rank)
