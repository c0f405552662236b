"""Modules of torch that scripts and packages touch before they compute anything."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import futures, overrides
from tilewright.nn.attention import flex_attention as flex

MODULES = """
__config__ _C _custom_ops _dynamo _dynamo.config _utils autograd.profiler backends.cpu
backends.mkl backends.mkldnn backends.openmp backends.opt_einsum backends.quantized cpu distributed
distributed.distributed_c10d futures fx hub jit jit.annotations mps mtia multiprocessing ops
overrides profiler storage types utils._pytree utils.checkpoint utils.collect_env
utils.cpp_extension utils.data.dataloader utils.dlpack utils.hooks utils.model_zoo xpu
nn.attention.flex_attention
""".split()


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_pytorchs(torch: Any, name: str) -> None:
    ours = importlib.import_module(f"tilewright.{name}")
    theirs = importlib.import_module(f"torch.{name}")
    for each in getattr(ours, "__all__", ()):
        assert hasattr(ours, each) and (hasattr(theirs, each) or each in vars(theirs))


def test_nothing_of_them_is_loaded_with_tilewright(run_python) -> None:
    names = [f"tilewright.{n}" for n in MODULES if n not in ("utils.data.dataloader",)]
    code = f"import sys, tilewright; print([n for n in {names!r} if n in sys.modules])"
    loaded = eval(run_python(code))
    assert all(n.startswith(("tilewright.backends", "tilewright.autograd")) for n in loaded), loaded


def test_no_compiler_is_loaded_with_tilewright(run_python) -> None:
    """Emitters and passes take longer to load than the rest of the package."""
    code = """
import sys, tilewright
print([n for n in ("tilewright.codegen.kernel", "tilewright.codegen.llvm.emitter",
    "tilewright.codegen.fusion", "llvmlite", "fractions", "multiprocessing", "json", "tempfile")
    if n in sys.modules])"""
    assert run_python(code) == "[]\n"


def test_devices_that_are_not_here_say_so() -> None:
    for kind in (tw.xpu, tw.mps, tw.mtia):
        assert not kind.is_available() and kind.device_count() == 0
        kind.synchronize(), kind.empty_cache()
        assert not hasattr(kind, "no_such_name")
    with pytest.raises(RuntimeError, match=r"torch\.xpu\.current_device: no such device"):
        tw.xpu.current_device()
    assert tw.cpu.is_available() and tw.cpu.current_device() == "cpu"
    with tw.backends.mkldnn.flags(enabled=False):
        assert not tw.backends.mkldnn.enabled
    assert tw.backends.mkldnn.enabled and not tw.backends.mkl.is_available()


def test_scripted_functions_run_in_python() -> None:
    @tw.jit.script
    def relu_or_not(x: Any, yes: bool) -> Any:
        return x.relu() if yes else x

    @tw.jit.ignore(drop=True)
    def one() -> int:
        return 1

    module = tw.nn.Linear(2, 2)
    assert relu_or_not(tw.tensor([-1.0]), False).item() == -1 and one() == 1
    assert isinstance(tw.jit.script(module), tw.jit.ScriptModule)
    assert not tw.jit.is_scripting() and not tw.jit.is_tracing()
    assert tw.jit.isinstance([1, 2], list[int]) and not tw.jit.isinstance([1, "a"], list[int])
    assert tw.jit.wait(tw.jit.fork(lambda x: x + 1, 2)) == 3
    with pytest.raises(RuntimeError, match=r"expected what torch\.jit\.script"):
        tw.jit.save(module, "file")


def test_futures() -> None:
    first: futures.Future[int] = futures.Future()
    later = first.then(lambda f: f.wait() + 1)
    assert not later.done()
    first.set_result(1)
    assert futures.wait_all([first, later]) == [1, 2] and later.value() == 2
    with pytest.raises(RuntimeError, match="once"):
        first.set_result(3)


def test_objects_with_a_say_are_asked() -> None:
    class Loud:
        @classmethod
        def __torch_function__(
            cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func.__name__, args

    def public(a: Any, b: Any) -> Any:
        if overrides.has_torch_function((a, b)):
            return overrides.handle_torch_function(public, (a, b), a, b)
        return a + b

    loud = Loud()
    assert public(1, 2) == 3 and public(loud, 2) == ("public", (loud, 2))
    assert overrides.is_tensor_like(loud) and overrides.is_tensor_like(tw.ones(1))
    assert not overrides.is_tensor_like(3) and not overrides.has_torch_function((tw.ones(1), 2))


def test_layouts_and_formats_are_objects() -> None:
    assert repr(tw.channels_last) == "torch.channels_last" and tw.ones(1).layout is tw.strided
    assert isinstance(tw.strided, tw.layout) and isinstance(tw.channels_last, tw.memory_format)
    assert pickle.loads(pickle.dumps(tw.channels_last)) == tw.channels_last
    assert not tw.ones(1).is_meta and not tw.ones(1).is_sparse


@pytest.mark.computes
def test_views_share_an_address_and_a_storage() -> None:
    base = tw.arange(6.0)
    part = base[2:].view(2, 2)
    assert part.data_ptr() == base.data_ptr() + 8
    assert part.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
    assert base.clone().data_ptr() != base.data_ptr() and tw.empty(0).data_ptr() == 0
    assert len({tw.zeros(3).data_ptr() for _ in range(1)} | {base.data_ptr()}) == 2
    one, other = tw.zeros(3), tw.zeros(3)
    assert one.data_ptr() != other.data_ptr()
    assert part.untyped_storage().nbytes() == 24 and part.storage().size() == 6
    assert part.storage().tolist() == base.tolist() and part.storage()[1] == 1.0
    base.untyped_storage().fill_(0)
    assert part.tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_a_storage_of_a_file(tmp_path: Path) -> None:
    path = str(tmp_path / "bytes")
    written = tw.UntypedStorage.from_file(path, shared=True, nbytes=4)
    written[1] = 7
    assert tw.UntypedStorage.from_file(path, nbytes=4).tolist() == [0, 7, 0, 0]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:TypedStorage")
def test_storages_of_buffers(torch: Any) -> None:
    """Accelerate and Hugging Face's readers make them, to send objects between processes."""

    def seen(m: Any) -> list[Any]:
        eight = b"12345678"
        found: list[Any] = []
        for make in (
            lambda: m.ByteTensor(m.ByteStorage._from_buffer(eight)).tolist(),
            lambda: m.CharStorage.from_buffer(eight, count=2, offset=3),
            lambda: m.FloatStorage.from_buffer(eight, "native"),
            lambda: m.FloatStorage.from_buffer(eight, "big"),
            lambda: m.ShortStorage.from_buffer(eight, "little", 1, 4),
            lambda: m.BoolStorage.from_buffer(b"\0\2", "big"),
            lambda: m.UntypedStorage.from_buffer(eight, "native", dtype=m.float32),
            lambda: m.UntypedStorage.from_buffer(b"ab", dtype=m.uint8),
            lambda: m.LongStorage.from_buffer(b"", "native"),
            lambda: m.FloatStorage.from_buffer(eight, "native", 0),
            lambda: m.zeros(2, device="meta").untyped_storage(),
        ):
            found.append(repr(make()))
        for fail in (
            lambda: m.FloatStorage.from_buffer(eight),
            lambda: m.FloatStorage.from_buffer(eight[:5], "native"),
            lambda: m.FloatStorage.from_buffer(eight, "native", 3),
            lambda: m.FloatStorage.from_buffer(eight, "native", -1, 9),
            lambda: m.FloatStorage.from_buffer(eight, "middle"),
        ):
            with pytest.raises((RuntimeError, ValueError)) as error:
                fail()
            found.append((error.type, str(error.value)[:20]))
        return found

    assert seen(tw) == seen(torch)


def test_tensors_of_subclasses_are_rebuilt(torch: Any) -> None:
    """Lightning's lazy reader of checkpoints rebuilds them itself."""

    def seen(m: Any) -> list[Any]:
        kind = type("Marked", (m.Tensor,), {})
        home = importlib.import_module(f"{m.__name__}._tensor")
        made = home._rebuild_from_type_v2(m.tensor, kind, ([1.0, 2.0],), {"mark": 3})
        return [type(made).__name__, made.mark, made.tolist()]

    assert seen(tw) == seen(torch)


def test_names_that_packages_ask_of_the_machine(torch: Any) -> None:
    def seen(m: Any) -> list[Any]:
        triton = importlib.import_module(f"{m.__name__}.utils._triton")
        fsdp = importlib.import_module(f"{m.__name__}.distributed.fsdp")
        layer = m.nn.Linear(2, 2)
        kept = layer.forward
        fsdp.register_fsdp_forward_method(layer, "forward")
        unset = importlib.import_module(f"{m.__name__}.utils.deterministic")
        return [
            triton.has_triton() == (triton.has_triton_package() and m.cuda.is_available()),
            layer.forward == kept,
            unset.fill_uninitialized_memory,
        ]

    assert seen(tw) == seen(torch)


def test_shared_memory_is_that_of_a_forked_process(run_python) -> None:
    code = (
        "import os, tilewright as tw\n"
        "t = tw.zeros(2, 2).share_memory_()\n"
        "assert t.is_shared() and not tw.zeros(1).is_shared()\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    t += 3\n"
        "    t.numpy()\n"
        "    os._exit(0)\n"
        "os.waitpid(pid, 0)\n"
        "print(t.tolist())\n"
    )
    assert run_python(code) == "[[3.0, 3.0], [3.0, 3.0]]\n"


def test_processes_run_a_function_with_their_number(tmp_path: Path, run_python) -> None:
    script = tmp_path / "spawned.py"
    script.write_text(
        "import sys\n"
        "import tilewright.multiprocessing as mp\n"
        "def work(i, folder):\n"
        "    if folder == 'fail' and i == 1:\n"
        "        raise ValueError('one failed')\n"
        "    open(f'{folder}/{i}', 'w').close() if folder != 'fail' else None\n"
        "if __name__ == '__main__':\n"
        "    mp.spawn(work, (sys.argv[1],), nprocs=2)\n"
        "    try:\n"
        "        mp.start_processes(work, ('fail',), nprocs=2, start_method='fork')\n"
        "    except mp.ProcessRaisedException as error:\n"
        "        print(error.error_index, 'one failed' in str(error))\n"
    )
    code = "import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')"
    assert run_python(code, str(script), str(tmp_path)) == "1 True\n"
    assert {p.name for p in tmp_path.iterdir()} >= {"0", "1"}


def test_the_hub_loads_local_repositories(tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "hubconf.py").write_text(
        "dependencies = ['numpy']\ndef model(n=1):\n    'Makes it.'\n    return [n]\n"
    )
    local = {"source": "local"}
    assert tw.hub.list(str(tmp_path), **local) == ["model"]
    assert tw.hub.load(str(tmp_path), "model", n=3, **local) == [3]
    assert tw.hub.help(str(tmp_path), "model", **local) == "Makes it."
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    assert tw.hub.get_dir() == str(tmp_path / "home" / "hub")
    file = tmp_path / "weights-0a1b.pt"
    tw.save({"w": tw.ones(2)}, file)
    got = tw.hub.load_state_dict_from_url(file.as_uri(), progress=False)
    assert got["w"].tolist() == [1.0, 1.0]
    with pytest.raises(RuntimeError, match="invalid hash value"):
        folder = str(tmp_path / "other")
        tw.hub.load_state_dict_from_url(file.as_uri(), folder, progress=False, check_hash=True)


def test_a_profile_has_the_named_blocks(tmp_path: Path) -> None:
    from tilewright.profiler import ProfilerAction, profile, record_function, schedule

    steps = schedule(wait=1, warmup=1, active=2, repeat=1)
    actions = [steps(i) for i in range(5)]
    A = ProfilerAction
    assert actions == [A.NONE, A.WARMUP, A.RECORD, A.RECORD_AND_SAVE, A.NONE]
    with profile() as prof:
        for _ in range(3):
            with record_function("block"):
                tw.ones(3).sum()
    (event,) = (e for e in prof.key_averages() if e.is_user_annotation)
    assert event.key == "block" and event.count == 3 and "block" in prof.key_averages().table()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))


def test_blocks_in_blocks_and_the_table(torch: Any) -> None:
    """The table has PyTorch's columns; the time of an inner block is no time of the outer's own."""

    def run(m: Any) -> tuple[Any, list[int]]:
        ends: list[int] = []
        steps = m.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
        with m.profiler.profile(
            activities=[m.profiler.ProfilerActivity.CPU],
            schedule=steps,
            on_trace_ready=lambda p: ends.append(p.step_num),
        ) as prof:
            for _ in range(3):
                prof.step()
        activities = [m.profiler.ProfilerActivity.CPU]
        block = m.profiler.record_function
        with m.profiler.profile(activities=activities) as prof, block("outer"):
            for _ in range(2):
                with block("inner"):
                    m.ones(200, 200).cos().sum().item()
        return prof, ends

    (mine, steps), (theirs, wanted) = run(tw), run(torch)
    assert steps == wanted
    blocks = [e for e in mine.events() if e.is_user_annotation]
    inner, outer = (e for name in ("inner", "outer") for e in mine.key_averages() if e.name == name)
    assert (inner.count, outer.count) == (2, 1)
    assert [e.name for e in blocks] == ["outer", "inner", "inner"]
    assert blocks[0].cpu_children == blocks[1:]
    assert [e.name for e in blocks[1].cpu_children][1:3] == ["aten::cos", "aten::sum"]
    assert inner.cpu_time_total > inner.self_cpu_time_total > 0
    parts = inner.cpu_time_total + outer.self_cpu_time_total
    assert outer.cpu_time_total == pytest.approx(parts) == pytest.approx(mine.self_cpu_time_total)
    tables = [p.key_averages().table(sort_by="cpu_time_total").split("\n") for p in (mine, theirs)]
    for ours, other in zip(*[t[:3] for t in tables], strict=True):
        assert ours.split() == other.split() or set(ours) == set(other) == {"-", " "}
    assert [t[-2].rpartition(":")[0] for t in tables] == ["Self CPU time total"] * 2
    assert tables[0][3].split()[0] == "outer"


def test_ops_are_found_by_namespace() -> None:
    @tw.library.custom_op("doors::twice", mutates_args=())
    def twice(x: tw.Tensor) -> tw.Tensor:
        return x * 2

    assert (
        tw.ops.doors.twice(tw.ones(1)).item() == tw.ops.doors.twice.default(tw.ones(1)).item() == 2
    )
    assert not hasattr(tw.ops.doors, "thrice")
    with pytest.raises(OSError, match="PyTorch's own binaries"):
        tw.ops.load_library("x.so")


def test_tensorboard_says_what_to_install(run_python, tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['tensorboard'] = None\n"
        "try:\n"
        "    import tilewright.utils.tensorboard\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    assert "pip install tensorboard" in run_python(code)


def test_extensions_in_cpp_are_refused() -> None:
    from tilewright.utils import cpp_extension

    with pytest.raises(RuntimeError, match="Triton"):
        cpp_extension.load("name", ["file.cpp"])


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile:UserWarning")
@pytest.mark.parametrize("grouped", [False, True])
def test_flexible_attention_is_pytorchs(torch: Any, grouped: bool) -> None:
    theirs = importlib.import_module("torch.nn.attention.flex_attention")
    rng = np.random.default_rng(0)
    shapes = [(2, 4, 5, 8), (2, 2 if grouped else 4, 7, 8), (2, 2 if grouped else 4, 7, 8)]
    arrays = [rng.standard_normal(s).astype(np.float32) for s in shapes]

    def outcome(lib: Any, module: Any) -> list[np.ndarray]:
        q, k, v = map(lib.tensor, arrays)
        slopes = lib.tensor([0.1, 0.2, 0.3, 0.4])

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            return s + slopes[h] * (j - i)

        mask = module.create_block_mask(lambda b, h, i, j: i + 1 >= j, None, None, 5, 7, "cpu")
        out, lse = module.flex_attention(
            q, k, v, score, mask, enable_gqa=grouped, return_aux=module.AuxRequest(lse=True)
        )
        return [t.detach().numpy() for t in (out, lse.lse)]

    for got, wanted in zip(outcome(tw, flex), outcome(torch, theirs), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=2e-5)


def test_gradients_of_flexible_attention_are_those_of_attention_with_a_bias() -> None:
    tw.manual_seed(0)
    q, k, v = (tw.randn(1, 2, 5, 4, requires_grad=True) for _ in range(3))
    i, j = tw.arange(5).view(5, 1), tw.arange(5)
    bias = tw.where(i >= j, (j - i) * 0.5, -tw.inf)
    mask = flex.create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 5, 5, "cpu")
    ours = flex.flex_attention(q, k, v, lambda s, b, h, i, j: s + (j - i) * 0.5, mask)
    theirs = tw.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    for got, wanted in zip(
        tw.autograd.grad((ours**2).sum(), (q, k, v)),
        tw.autograd.grad((theirs**2).sum(), (q, k, v)),
        strict=True,
    ):
        tw.testing.assert_close(got, wanted)


def test_masks_are_combined_and_blocked() -> None:
    causal = flex.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 256, 256, "cpu")
    assert causal.to_dense().tolist() == [[[[1, 0], [1, 1]]]] and causal.sparsity() == 25.0
    both = flex.and_masks(lambda b, h, q, k: q >= k, lambda b, h, q, k: k > 0)
    assert flex.create_mask(both, 1, 1, 2, 3, "cpu").tolist() == [
        [[[False] * 3, [False, True, False]]]
    ]
    assert sys.modules["tilewright.nn.attention.flex_attention"] is flex


def test_checks_and_modes_by_name(torch: Any) -> None:
    def answers(m: Any) -> list[Any]:
        found: list[Any] = [m.is_inference_mode_enabled()]
        with m.inference_mode():
            found += [m.is_inference_mode_enabled(), m.is_grad_enabled()]
            with m.inference_mode(False):
                found += [m.is_inference_mode_enabled(), m.is_grad_enabled()]
        x = m.tensor([-1.0, 2.0])
        found += [m.selu_(x.clone()).tolist(), m.threshold_(x.clone(), 0, 5.0).tolist()]
        found += [m.celu_(x).tolist(), m.sym_sum([1, 2]), m.sym_sqrt(4), m.torch is m]
        for check in (
            lambda: m._check_with(ValueError, False, lambda: "no"),
            lambda: m._check_index(False),
            lambda: m._check_value(False),
            lambda: m._check_type(False),
            lambda: m._check_not_implemented(False),
            lambda: m._check_tensor_all(m.tensor([True, False])),
            lambda: m._check_tensor_all(True),
            lambda: m._check_tensor_all(m.tensor([True])),
        ):
            try:
                found.append(check())
            except Exception as error:
                found.append(type(error))
        return found

    assert answers(tw) == answers(torch)
