"""The card as programs meet it: streams, events, graphs, memory, devices."""

from __future__ import annotations

from typing import Any

from . import Step, choose, draw, program, settle
from .loops import perceptron


@program("streams and events, copies beside work", 1e-3, card=True)
def streams(torch: Any, device: str) -> Step:
    cuda = torch.cuda
    side = cuda.Stream()
    host = draw(torch, 512, 512).pin_memory()
    weight = draw(torch, 512, 512, seed=1, scale=0.04).to(device)

    def step() -> Any:
        with cuda.stream(side):
            x = host.to(device, non_blocking=True)
            copied = side.record_event()
        cuda.current_stream().wait_event(copied)
        x.record_stream(cuda.current_stream())
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        start.record()
        y = x @ weight
        end.record()
        end.synchronize()
        side.wait_stream(cuda.current_stream())
        with cuda.stream(side):
            z = (y @ weight).to("cpu", non_blocking=True)
        side.synchronize()
        return y, z, start.elapsed_time(end) > 0, end.query(), side.query()

    return step


@program("a step captured as a CUDA graph", 1e-3, card=True)
def captured(torch: Any, device: str) -> Step:
    cuda, F = torch.cuda, torch.nn.functional
    model = settle(torch, perceptron(torch, 64, 128, 8)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, capturable=True)
    x, y = draw(torch, 64, 64).to(device), choose(torch, 8, 64).to(device)

    def train() -> Any:
        optimizer.zero_grad(set_to_none=True)
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    side = cuda.Stream()
    side.wait_stream(cuda.current_stream())
    with cuda.stream(side):
        for _ in range(3):
            train()
    cuda.current_stream().wait_stream(side)
    graph = cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with cuda.graph(graph):
        loss = train()
    batches = [draw(torch, 64, 64, seed=i).to(device) for i in range(4)]
    state = {"step": 0}

    def step() -> float:
        x.copy_(batches[state["step"] % 4])
        state["step"] += 1
        graph.replay()
        return loss.item()

    return step


@program("memory: allocated, peak, freed; out of memory", 0.1, card=True)
def memory(torch: Any, device: str) -> Step:
    cuda, size = torch.cuda, 64 << 20

    def step() -> Any:
        cuda.empty_cache()
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        before = cuda.memory_allocated()
        a = torch.ones(size // 4, device=device)
        cuda.synchronize()
        held = cuda.memory_allocated() - before
        free, whole = cuda.mem_get_info()
        told = cuda.memory_reserved() >= held and 0 < free < whole
        told = told and "MiB" in cuda.memory_summary()
        b = a + 1
        total = b[:1024].sum().item()
        del b
        top = cuda.max_memory_allocated() - before
        del a
        left = cuda.memory_allocated() - before
        try:
            torch.empty(1 << 45, dtype=torch.uint8, device=device).fill_(1)[:1].item()
            large = "nothing"
        except torch.cuda.OutOfMemoryError:
            large = "OutOfMemoryError"
        return total, held / size, size <= top <= 3 * size, left < size // 8, large, told

    return step


@program("training keeps its memory", 0.1, card=True, steps=3)
def steady(torch: Any, device: str) -> Step:
    model = settle(torch, perceptron(torch, 256, 512, 16)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    x, y = draw(torch, 128, 256).to(device), choose(torch, 16, 128).to(device)

    def train() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    def step() -> Any:
        train()
        before = torch.cuda.memory_allocated()
        for _ in range(20):
            loss = train()
        return loss, torch.cuda.memory_allocated() - before <= 1 << 20

    return step


@program("names of the card, default device, current device", 1e-3, card=True)
def names(torch: Any, device: str) -> Step:
    cuda = torch.cuda

    def step() -> Any:
        properties = cuda.get_device_properties(0)
        with torch.device(device):
            made = torch.zeros(3)
            layer = torch.nn.Linear(3, 2)
        torch.set_default_device(device)
        here = torch.arange(3.0)
        torch.set_default_device("cpu")
        with cuda.device(0):
            there = torch.ones(2, device="cuda")
        return {
            "name": (cuda.get_device_name(), properties.name, properties.multi_processor_count),
            "capability": list(cuda.get_device_capability()),
            "memory": properties.total_memory,
            "count": (cuda.device_count(), cuda.current_device(), cuda.is_available()),
            "devices": (str(made.device), str(layer.weight.device), str(here.device)),
            "there": (str(there.device), there.is_cuda, there.get_device()),
            "index": repr(torch.device("cuda", 0)) + repr(torch.device("cuda")),
            "text": repr(torch.arange(3.0, device=device)),
            "bf16": cuda.is_bf16_supported(),
            "same": torch.device("cuda:0") == made.device,
            "accelerator": str(torch.accelerator.current_accelerator()),
            "arch": f"sm_{properties.major}{properties.minor}",
        }  # fmt: skip

    return step


@program("attention: masks, grouped heads, backends, long rows", 1e-2)
def attention(torch: Any, device: str) -> Step:
    F = torch.nn.functional
    q = draw(torch, 2, 8, 100, 64).to(device).requires_grad_()
    k, v = (draw(torch, 2, 8, 100, 64, seed=i).to(device) for i in (1, 2))
    mask = (draw(torch, 2, 1, 100, 100) > -1).to(device)
    mask[..., 0] = True

    def step() -> Any:
        q.grad = None
        sdpa = F.scaled_dot_product_attention
        causal = sdpa(q, k, v, is_causal=True)
        masked = sdpa(q, k, v, attn_mask=mask)
        biased = sdpa(q, k, v, attn_mask=mask.float() * 0.5, scale=0.1)
        grouped = sdpa(q, k[:, :2], v[:, :2], enable_gqa=True)
        short = sdpa(q[:, :, :1], k, v)
        halves = sdpa(q.bfloat16(), k.bfloat16(), v.bfloat16(), is_causal=True)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            plain = sdpa(q, k, v)
        found = (causal, masked, biased, grouped, short, plain)
        sum(x.square().mean() for x in found).backward()
        return *(x.detach() for x in found), halves.float(), q.grad

    return step


@program("a large product and a large elementwise chain", 2e-2)
def large(torch: Any, device: str) -> Step:
    side = 2048 if device != "cpu" else 256
    a, b = (draw(torch, side, side, seed=i, scale=side**-0.5).to(device).bfloat16() for i in (0, 1))
    x = draw(torch, 4 * side, side).to(device)

    def step() -> Any:
        y = torch.relu(a @ b @ a + 1).float()
        z = torch.sigmoid(x * 2 + 1) * x.tanh() - x.abs().sqrt()
        return y[::64, ::64], z[::256, ::64], z.mean(), y.softmax(-1).amax(1)[:64]

    return step
