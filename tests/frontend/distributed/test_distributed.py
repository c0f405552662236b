"""torch.distributed: several processes on this machine, beside PyTorch's gloo."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright import distributed as dist
from tilewright.distributed import run

PROGRAM = Path(__file__).parents[2] / "support" / "together.py"


def results(library: str, folder: Path, count: int = 3) -> list[Any]:
    run.main([f"--nproc-per-node={count}", str(PROGRAM), library, str(folder / library)])
    return [json.loads((folder / f"{library}.{rank}").read_text()) for rank in range(count)]


@pytest.mark.slow
def test_every_operation_gives_what_pytorchs_gives(torch: Any, tmp_path: Path) -> None:
    for mine, theirs in zip(results("tilewright", tmp_path), results("torch", tmp_path)):
        assert mine.keys() == theirs.keys()
        for name, wanted in theirs.items():
            assert close(mine[name], wanted), (name, mine[name], wanted)


def close(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(close(a[k], b[k]) for k in a)
    if isinstance(a, float):
        return bool(a == pytest.approx(b, rel=1e-4, abs=1e-5))
    return bool(a == b)


TRAINING = """
import sys
import tilewright as tw
from tilewright import distributed as dist, nn
from tilewright.nn.parallel import DistributedDataParallel

dist.init_process_group(init_method=sys.argv[1], rank=int(sys.argv[2]), world_size=2)
rank = dist.get_rank()
total = tw.full((3,), float(rank + 1))
dist.all_reduce(total)
assert total.tolist() == [3, 3, 3]

def net():
    tw.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1))

x = tw.sin(tw.arange(24.0)).reshape(8, 3)
alone = net()
(alone(x) ** 2).mean().backward()
both = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net()))
(both(x[rank * 4 : rank * 4 + 4]) ** 2).mean().backward()
for (name, p), q in zip(alone.named_parameters(), both.parameters(), strict=True):
    tw.testing.assert_close(q.grad, p.grad, msg=name)
for (name, p), q in zip(alone.named_buffers(), both.buffers(), strict=True):
    tw.testing.assert_close(q, p, msg=name)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("kind", [pytest.param("file", marks=pytest.mark.slow), "tcp"])
def test_two_processes_train_as_one_with_all_data(tmp_path: Path, kind: str) -> None:
    address = f"file://{tmp_path}/meet" if kind == "file" else f"tcp://127.0.0.1:{run._free_port()}"
    commands = [[sys.executable, "-c", TRAINING, address, str(rank)] for rank in range(2)]
    processes = [
        subprocess.Popen(c, stderr=subprocess.PIPE, text=True, env=os.environ) for c in commands
    ]
    errors = [p.communicate(timeout=120)[1] for p in processes]
    assert [p.returncode for p in processes] == [0, 0], errors


def test_the_launcher_ends_all_processes_if_one_fails(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text(
        "import os, sys, time\nsys.exit(5) if os.environ['RANK'] == '1' else time.sleep(60)\n"
    )
    with pytest.raises(SystemExit) as ended:
        run.main(["--nproc_per_node", "2", str(script)])
    assert ended.value.code == 5


def test_stores(tmp_path: Path) -> None:
    master = dist.TCPStore("127.0.0.1", 0, 1, True)
    stores: list[dist.Store] = [
        dist.HashStore(),
        dist.FileStore(str(tmp_path / "table"), 1),
        master,
        dist.PrefixStore("mine", dist.TCPStore("127.0.0.1", master.port, None, False)),
    ]
    for store in stores:
        before = store.num_keys()
        store.set("a", "1")
        threading.Timer(0.05, store.set, ("late", b"x\0y")).start()
        assert store.get("a") == b"1" and store.get("late") == b"x\0y"
        assert store.add("n", 2) == 2 and store.add("n", -5) == -3
        assert store.compare_set("a", "1", "2") == b"2" and store.compare_set("a", "1", "3") == b"2"
        assert store.check(["a", "n"]) and not store.check(["none"])
        assert store.num_keys() == before + 3 and store.delete_key("a")
        assert not store.delete_key("a")
        with pytest.raises(RuntimeError, match="keys: none"):
            store.wait(["none"], timedelta(milliseconds=20))


def test_a_world_of_one(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has not been initialized"):
        dist.all_reduce(tw.ones(2))
    with pytest.raises(RuntimeError, match="have NCCL built in"):
        dist.init_process_group("nccl")
    with pytest.raises(ValueError, match="RANK expected"):
        dist.init_process_group("gloo")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        x = tw.arange(3.0)
        dist.all_reduce(x)
        work = dist.all_reduce(x, async_op=True)
        assert work is not None and work.get_future().wait()[0] is x and x.tolist() == [0, 1, 2]
        with pytest.raises(TypeError, match="Expected parameter `tensor`"):
            dist.all_reduce([1.0])  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="expected a tensor for each of 1 processes"):
            dist.all_gather([], x)
        model = tw.nn.parallel.DistributedDataParallel(tw.nn.Linear(3, 2))
        used = model.module.weight
        (used * used).sum().backward()
        assert used.grad is not None  # no forward pass: nothing is averaged
        model.zero_grad()
        model(x)[0].backward()
        with pytest.raises(RuntimeError, match="find_unused_parameters"):
            model(x)
            used.sum().backward(inputs=[used]), model.zero_grad(), used.sum().backward()
        model.register_comm_hook(None, lambda state, bucket: None)
        with pytest.raises(RuntimeError, match="can only be called once"):
            model.register_comm_hook(None, lambda state, bucket: None)
        with pytest.raises(TypeError, match="must be callable"):
            model.register_comm_hook(None, 3)
        with model.join(), model.no_sync():
            model(x).sum().backward()
    finally:
        dist.destroy_process_group()
    assert not dist.is_initialized()


def test_meshes_in_a_world_of_one(torch: Any) -> None:
    def facts(m: Any) -> Any:
        d = m.distributed
        made = importlib.import_module(f"{m.__name__}.distributed.device_mesh")
        d.init_process_group("gloo", store=d.HashStore(), rank=0, world_size=1)
        try:
            mesh = made.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
            of_group = made.DeviceMesh.from_group(d.new_group([0]), "cpu")
            errors = [
                lambda: mesh["c"],
                lambda: mesh.get_group(),
                lambda: made.DeviceMesh("cpu", [0, 1]),
                lambda: made.init_device_mesh("cpu", (1,), mesh_dim_names=("a", "b")),
                lambda: made.init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "a")),
                lambda: made.DeviceMesh("cpu", [[0]])["a"],
            ]
            said = []
            for each in errors:
                with pytest.raises((KeyError, RuntimeError, ValueError)) as raised:
                    each()
                said.append(type(raised.value).__name__)
            return (
                mesh["a"] == mesh["b"], mesh["a"] == mesh["a"],
                of_group.mesh.tolist(), str(of_group.mesh.dtype), of_group.get_coordinate(),
                of_group.ndim, said,
            )  # fmt: skip
        finally:
            d.destroy_process_group()

    mine, theirs = facts(tw), facts(torch)
    assert str(mine).replace("tilewright", "torch") == str(theirs)


def test_states_by_plain_names(torch: Any) -> None:
    def run(m: Any) -> Any:
        states = importlib.import_module(f"{m.__name__}.distributed.checkpoint.state_dict")
        wrappers = importlib.import_module(
            f"{m.__name__}.distributed.algorithms._checkpoint.checkpoint_wrapper"
        )
        m.manual_seed(0)
        model = m.nn.Sequential(m.nn.Linear(2, 3), m.nn.ReLU(), m.nn.Linear(3, 1))
        wrappers.apply_activation_checkpointing(
            model, check_fn=lambda module: isinstance(module, m.nn.Linear)
        )
        optimizer = m.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        model(m.ones(4, 2)).sum().backward()
        optimizer.step()
        whole, own = states.get_state_dict(model, optimizer)
        momentum = {k: v["momentum_buffer"] for k, v in own["state"].items()}
        states.set_state_dict(model, optimizer, model_state_dict=whole, optim_state_dict=own)
        assert all(
            (optimizer.state[p]["momentum_buffer"] == g).all()
            for p, g in zip(model.parameters(), momentum.values(), strict=True)
        )
        return (
            [type(child).__name__ for child in model],
            {k: tuple(v.shape) for k, v in whole.items()},
            sorted(model.state_dict()),
            {k: tuple(v.shape) for k, v in momentum.items()},
            own["param_groups"][0]["params"],
        )

    assert run(tw) == run(torch)


def test_policies_of_wrapping(torch: Any) -> None:
    def run(m: Any) -> Any:
        wrap = importlib.import_module(f"{m.__name__}.distributed.fsdp.wrap")
        small, large = m.nn.Linear(2, 2), m.nn.ModuleList()
        policy = wrap.ModuleWrapPolicy({m.nn.Linear})
        sized = wrap.size_based_auto_wrap_policy
        return (
            policy(small, False), policy(large, False), policy(large, True),
            wrap.transformer_auto_wrap_policy(small, False, 1, {m.nn.ReLU}),
            sized(small, False, 10, min_num_params=5), sized(large, False, 10, min_num_params=5),
            sized(small, True, 3, min_num_params=5), wrap.wrap(small) is small,
        )  # fmt: skip

    assert run(tw) == run(torch)


def test_what_is_missing_has_its_name_and_refuses() -> None:
    for path, name in (
        ("algorithms.ddp_comm_hooks.powerSGD_hook", "powerSGD_hook"),
        ("checkpoint", "HuggingFaceStorageReader"),
        ("tensor.parallel", "parallelize_module"),
        ("fsdp", "FullyShardedDataParallel"),
    ):
        module = importlib.import_module(f"tilewright.distributed.{path}")
        with pytest.raises(RuntimeError, match=f"{name}: not there yet"):
            getattr(module, name)(None)


def test_callbacks_at_the_end_of_a_backward_pass(torch: Any) -> None:
    def seen(m: Any) -> list[Any]:
        x, calls = m.ones(2, requires_grad=True), []
        y = x * 2
        engine = m.autograd.Variable._execution_engine
        y.register_hook(lambda g: engine.queue_callback(lambda: calls.append(x.grad.tolist())))
        y.sum().backward()
        return calls

    assert seen(tw) == seen(torch) == [[2.0, 2.0]]
