"""accelerate: loops, init_empty_weights, big models, checkpoints."""

import tempfile

import torch
from accelerate import (
    Accelerator,
    cpu_offload,
    disk_offload,
    infer_auto_device_map,
    init_empty_weights,
    load_checkpoint_and_dispatch,
)
from accelerate.state import AcceleratorState
from accelerate.utils import compute_module_sizes, set_seed
from task import draw, settle, task
from torch.utils.data import DataLoader, TensorDataset


def network():
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))


def rows():
    x = draw(32, 8)
    return DataLoader(TensorDataset(x, x[:, :3].argmax(1)), batch_size=8)


def trained(**options):
    AcceleratorState._reset_state(reset_partial_state=True)
    own = Accelerator(cpu=True, **options)
    model = settle(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda k: 1 / (k + 1))
    model, optimizer, loader, schedule = own.prepare(model, optimizer, rows(), schedule)
    losses = []
    for _ in range(2):
        for x, y in loader:
            with own.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(x), y)
                own.backward(loss)
                if own.sync_gradients:
                    own.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(loss.detach().float())
    return own, model, torch.stack(losses)


@task("a training loop with accumulated and clipped gradients")
def loop():
    own, model, losses = trained(gradient_accumulation_steps=2)
    yield "losses", losses
    yield "gathered", own.gather_for_metrics(losses)
    yield "unwrapped", type(own.unwrap_model(model)).__name__


@task("mixed precision: bf16", tolerance=2e-2)
def mixed():
    yield "losses", trained(mixed_precision="bf16")[2]


@task("save_state and load_state")
def states():
    own, model, _ = trained()
    with tempfile.TemporaryDirectory() as folder:
        own.save_state(folder)
        before = model[0].weight.detach().clone()
        torch.nn.init.zeros_(model[0].weight)
        own.load_state(folder)
        yield "same", bool((model[0].weight == before).all())
        own.save_model(model, f"{folder}/model")
    yield "weight", before


@task("init_empty_weights, device maps, weights loaded from shards")
def empty():
    with init_empty_weights():
        model = network()
    yield "device", str(model[0].weight.device)
    yield "sizes", {k or "all": v for k, v in compute_module_sizes(model).items()}
    yield "map", {k: str(v) for k, v in infer_auto_device_map(model, {"cpu": 10000}).items()}
    AcceleratorState._reset_state(reset_partial_state=True)
    full = settle(network())
    with tempfile.TemporaryDirectory() as folder:
        Accelerator(cpu=True).save_model(full, folder, max_shard_size="1KB")
        loaded = load_checkpoint_and_dispatch(model, folder, device_map={"": "cpu"})
    yield "made", loaded(draw(4, 8))


@task("weights that wait in main memory or on disk")
def offloaded():
    with tempfile.TemporaryDirectory() as folder:
        model = disk_offload(settle(network()).eval(), folder, torch.device("cpu"))
        yield "disk", model(draw(4, 8))
        yield "place", str(model[0].weight.device)
    model = cpu_offload(settle(network()).eval(), torch.device("cpu"))
    yield "memory", model(draw(4, 8))


@task("seeds repeat")
def seeds():
    set_seed(3)
    first = torch.rand(4)
    set_seed(3)
    yield "same", bool((torch.rand(4) == first).all())
