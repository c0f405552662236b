"""Small public names: types of few bits, parts of sparse tensors, steps of loading, switches of the
compiler, and what times and profiles are made of; beside PyTorch's."""

from __future__ import annotations

import importlib
import pickle
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.filterwarnings("ignore")


def part(m: Any, path: str) -> Any:
    return importlib.import_module(f"{m.__name__}.{path}")


def test_types_of_few_bits(torch: Any) -> None:
    names = [f"{kind}{n}" for kind in ("int", "uint") for n in range(1, 8)]
    for name in names:
        ours, theirs = getattr(tw, name), getattr(torch, name)
        for fact in ("itemsize", "is_floating_point", "is_complex", "is_signed"):
            assert getattr(ours, fact) == getattr(theirs, fact), (name, fact)
        assert repr(ours) == repr(theirs)
        assert pickle.loads(pickle.dumps(ours)) is ours
        with pytest.raises(TypeError, match="must be a dtype"):
            tw.zeros(2, dtype=ours)
    for name in "bits8 bits16 bits1x8 bits2x4 bits4x2".split():
        assert repr(getattr(tw, name)) == repr(getattr(torch, name))
        assert getattr(tw, name).itemsize == getattr(torch, name).itemsize
        with pytest.raises(RuntimeError, match="Bits types are undefined"):
            assert getattr(tw, name).is_signed
    assert tw.bit is tw.uint1 and torch.bit is torch.uint1


def test_the_smallest_numbers_are_flushed_on_request(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        small = m.tensor([1e-39, 1e-30])
        facts = []
        for mode in (True, False):
            assert m.set_flush_denormal(mode)
            try:
                facts += [(small * 1.0).tolist(), (small * 1e-9)[1].item(), repr(small[0])]
            finally:
                assert m.set_flush_denormal(False)
        found.append(facts)
    assert found[0] == found[1] and found[0][1] == 0 and found[0][4] > 0


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_parts_of_sparse_tensors_are_copied(torch: Any, layout: str) -> None:
    names = {"csr": ("crow_indices", "col_indices"), "csc": ("ccol_indices", "row_indices")}
    found = []
    for m in (tw, torch):
        x = getattr(m.tensor([[0.0, 2.0], [3.0, 0.0]]), f"to_sparse_{layout}")()
        found.append([getattr(m, f"{name}_copy")(x).tolist() for name in names[layout]])
        with pytest.raises(RuntimeError):
            getattr(m, f"{names[layout][0]}_copy")(m.eye(2))
    assert found[0] == found[1]
    coo = tw.eye(2).to_sparse_coo().coalesce()
    copied = tw.values_copy(coo)
    copied[0] = 5
    assert coo.values().tolist() == [1, 1]
    assert tw.indices_copy(coo).equal(coo.indices())


def test_steps_of_loading(torch: Any) -> None:
    for m in (tw, torch):
        s = part(m, "serialization")
        assert s.StorageType("HalfStorage").dtype is m.float16
        assert str(s.StorageType("HalfStorage")) == "StorageType(dtype=torch.float16)"
        assert s.normalize_storage_type(m.LongStorage) is m.LongStorage
        storage = m.ones(2).untyped_storage()
        assert s.default_restore_location(storage, "cpu") is storage
        with pytest.raises(RuntimeError, match=r"tagged with foo"):
            s.default_restore_location(storage, "foo")
        with pytest.raises(RuntimeError, match="HPU device module is not registered"):
            s.validate_hpu_device("hpu")
        with s.mkdtemp() as path:
            assert Path(path).is_dir()
        assert not Path(path).exists()


def test_parts_of_timers(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        common, timers = part(m, "utils.benchmark.utils.common"), part(m, "utils.benchmark")
        spec = common.TaskSpec
        facts: list[Any] = [common.select_unit(t) for t in (5, 0.5, 3e-3, 3e-5, 2e-9)]
        facts += [common.unit_to_english(u) for u in ("ns", "us", "ms", "s")]
        pairs = [(1234.567, 3), (0.0012345, 2), (99999, 2), (5.0, 1)]
        facts.append([round(common.trim_sigfig(*pair), 9) for pair in pairs])
        facts += [
            common.ordered_unique([3, 1, 3, 2]),
            len(part(m, "utils.benchmark.utils.timer").Language),
        ]
        facts += [each.value for each in part(m, "utils.benchmark.utils.compare").Colorize]
        for times in ([0.1] * 3, [0.1, 0.2, 0.3], [0.1, 0.101], [1.0] * 50, [1, 1.01, 1.02, 1.03]):
            facts.append(common.Measurement(1, times, spec("x", "pass")).significant_figures)
        facts.append(spec("a+b", "setup", label="L").summarize())
        before = m.get_num_threads()
        with common.set_torch_threads(1):
            facts.append(m.get_num_threads())
        assert m.get_num_threads() == before
        for name in ("repeat", "autorange"):
            with pytest.raises(NotImplementedError, match="blocked_autorange"):
                getattr(timers.Timer("1"), name)()
        found.append(facts)
    assert found[0] == found[1]


def test_numbers_of_devices_and_modes(torch: Any) -> None:
    kinds = [
        {k: v.value for k, v in m.profiler.DeviceType.__members__.items()} for m in (tw, torch)
    ]
    assert kinds[0] == kinds[1]
    modes = [[(e.name, e.value) for e in part(m, "numa.binding").AffinityMode] for m in (tw, torch)]
    assert modes[0] == modes[1]
    for m in (tw, torch):
        binding = part(m, "numa.binding")
        made = binding.NumaOptions(affinity_mode=binding.AffinityMode.NODE)
        assert not made.should_fall_back_if_binding_fails


def test_switches_of_the_compiler(torch: Any) -> None:
    names = (
        "accumulated_recompile_limit allow_unspec_int_on_nn_module assume_static_by_default "
        "automatic_dynamic_shapes capture_dynamic_output_shape_ops capture_scalar_outputs "
        "dynamic_shapes enable_cpp_symbolic_shape_guards fail_on_recompile_limit_hit "
        "force_disable_caches job_id log_file_name recompile_limit verbose wrap_top_frame "
        "reorderable_logging_functions skip_tensor_guards_with_matching_dict_tags"
    ).split()
    for m in (tw, torch):
        config, dynamo = part(m, "compiler.config"), part(m, "_dynamo.config")
        with config.patch(recompile_limit=3):
            assert config.recompile_limit == dynamo.recompile_limit == 3
        assert dynamo.recompile_limit == 8
    for name in names:
        assert getattr(tw.compiler.config, name) == getattr(torch.compiler.config, name), name


def test_functions_of_the_compiler(torch: Any) -> None:
    source = SimpleNamespace(
        is_unspecialized_nn_module=lambda: True, is_unspecialized_builtin_nn_module=lambda: False
    )
    results = []
    for m in (tw, torch):
        c = m.compiler
        entries = [
            SimpleNamespace(is_global=g, guard_type=kind, value=value,
                            orig_guard=SimpleNamespace(source=source))
            for g, kind, value in (
                (True, "TENSOR_MATCH", m.ones(1)), (False, "ID_MATCH", 3),
                (False, "TENSOR_MATCH", m.nn.Parameter(m.ones(1))),
            )
        ]  # fmt: skip
        facts = [c.keep_tensor_guards_unsafe(entries, keep_parameters=True)]
        for name in ("skip_all_guards_unsafe", "skip_guard_on_globals_unsafe",
                     "skip_guard_on_all_nn_modules_unsafe", "keep_tensor_guards_unsafe",
                     "skip_guard_on_inbuilt_nn_modules_unsafe"):  # fmt: skip
            facts.append(getattr(c, name)(entries))
        seen: list[type] = []

        @c.wrap_numpy
        def f(x: Any, y: Any) -> Any:
            seen.append(type(x))  # noqa: B023
            return {"sum": np.sin(x) + y}

        facts.append(f(m.ones(2), y=m.ones(2))["sum"].tolist())
        assert seen == [np.ndarray]
        region = c.nested_compile_region(lambda x: x + 1)
        facts += [region(m.ones(1)).tolist(), c.save_cache_artifacts()]
        facts += [c.set_enable_guard_collectives(True), c.set_enable_guard_collectives(False)]
        results.append(facts)
    assert results[0] == results[1]


def test_states_of_a_scaler(torch: Any) -> None:
    states = [[(s.name, s.value) for s in part(m, "amp.grad_scaler").OptState] for m in (tw, torch)]
    assert states[0] == states[1] and tw.version.rocm is None


def test_options_of_kernels(torch: Any) -> None:
    kinds = [part(m, "nn.attention.flex_attention").FlexKernelOptions for m in (tw, torch)]
    assert set(kinds[0].__annotations__) == set(kinds[1].__annotations__)
    assert kinds[0](BLOCK_M=64) == kinds[1](BLOCK_M=64)


NO_GPU: dict[str, tuple[Any, ...]] = {
    "backends.cuda.fp16_bf16_reduction_math_sdp_allowed": (),
    "backends.cuda.is_ck_sdpa_available": (),
    "backends.cuda.is_flash_attention_available": (),
    "backends.cuda.preferred_blas_library": ("cublas",),
    "backends.cuda.preferred_linalg_library": ("default",),
    "backends.cuda.preferred_linalg_library magma": ("magma",),
    "backends.cuda.preferred_linalg_library none": ("none",),
    "backends.cuda.preferred_blas_library number": (3,),
    "backends.cusparselt.get_max_alg_id": (),
    "backends.cusparselt.version": (),
    "backends.kleidiai.is_available": (),
    "cuda.amp.amp_definitely_not_available": (),
    "cuda.amp.common.amp_definitely_not_available": (),
    "cuda.caching_allocator_enable": (),
    "cuda.clock_rate": (),
    "cuda.get_gencode_flags": (),
    "cuda.list_gpu_processes": (),
    "cuda.memory_usage": (),
    "cuda.power_draw": (),
    "cuda.temperature": (),
    "cuda.utilization": (),
}
"""Calls, with what they are given."""


@pytest.mark.skipif(tw.cuda.is_available(), reason="there is a GPU to ask")
@pytest.mark.parametrize("name", NO_GPU)
def test_questions_about_gpus_where_there_is_none(torch: Any, name: str) -> None:
    home, last = name.split()[0].rsplit(".", 1)
    found: list[Any] = []
    for m in (tw, torch):
        try:
            found.append(getattr(part(m, home), last)(*NO_GPU[name]))
        except Exception as error:
            found.append(type(error).__name__)
    if hasattr(found[0], "name"):
        found = [(each.name, int(each)) for each in found]
    assert found[0] == found[1]


def test_what_a_monitor_tells_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = SimpleNamespace(gpu=7, memory=3)
    process = SimpleNamespace(pid=42, usedGpuMemory=3 * 2**20)
    monitor = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda number: number,
        nvmlDeviceGetUtilizationRates=lambda handle: rates,
        nvmlDeviceGetTemperature=lambda handle, sensor: 55 if sensor == 0 else -1,
        nvmlDeviceGetPowerUsage=lambda handle: 90_000,
        nvmlDeviceGetClockInfo=lambda handle, kind: 1410 if kind == 1 else -1,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [process] if handle == 0 else [],
    )
    monkeypatch.setitem(sys.modules, "pynvml", monitor)
    monkeypatch.setattr(part(tw, "cuda.monitoring"), "number_of", lambda device: device)
    c = tw.cuda
    found = [
        c.utilization(0),
        c.memory_usage(0),
        c.temperature(0),
        c.power_draw(0),
        c.clock_rate(0),
    ]
    assert found == [7, 3, 55, 90_000, 1410]
    assert c.list_gpu_processes(0).splitlines()[1].split()[:4] == ["process", "42", "uses", "3.000"]
    assert c.list_gpu_processes(1) == "GPU:1\nno processes are running"
    assert c.cudaStatus.SUCCESS == 0 and issubclass(c.DeferredCudaCallError, Exception)


def test_what_stands_for_the_compiled_part(torch: Any) -> None:
    def told(m: Any) -> Any:
        namespace = f"tags_of_{m.__name__}"
        tag = m.Tag

        def plus(x):  # type: ignore[no-untyped-def]
            return x + 1

        plus.__annotations__ = {"x": m.Tensor, "return": m.Tensor}
        plain = m.library.custom_op(f"{namespace}::plain", plus, mutates_args=())
        m.library.custom_op(
            f"{namespace}::many", plus, mutates_args=(), tags=[tag.reduction, tag.core]
        )
        m.library.define(f"{namespace}::one", "(Tensor x) -> Tensor", tags=tag.pointwise)
        library = m.library.Library(f"{namespace}2", "DEF")
        library.define("two(Tensor x) -> Tensor")
        ops, other = getattr(m.ops, namespace), getattr(m.ops, f"{namespace}2")
        errors = []
        for call in (
            lambda: m.classes.none.Thing,
            lambda: m.classes.load_library("/no/such.so"),
        ):
            with pytest.raises((RuntimeError, OSError)) as raised:
                call()
            errors.append(type(raised.value).__name__)
        return (
            [(t.name, int(t), str(t), repr(t)) for t in sorted(tag.__members__.values(), key=int)],
            [sorted(map(str, op.default.tags)) for op in (ops.plain, ops.many, ops.one, other.two)],
            str(plain._opoverload).rpartition(".")[2], errors, len(m.classes.loaded_libraries),
            issubclass(m.AcceleratorError, RuntimeError), m.compiled_with_cxx11_abi(),
            m.from_dlpack(m.to_dlpack(m.arange(3))).tolist(), isinstance(3, m.ScriptObject),
            m.DisableTorchFunctionSubclass is m._C.DisableTorchFunctionSubclass,
        )  # fmt: skip

    assert told(tw) == told(torch)


def test_arguments_that_few_give(torch: Any) -> None:
    def told(m: Any) -> Any:
        rnn, parametrize = part(m, "nn.utils.rnn"), part(m, "nn.utils.parametrize")
        packed = rnn.pack_sequence([m.arange(3.0), m.arange(2.0)])
        checkpoints = part(m, "utils.checkpoint")
        context = checkpoints.SelectiveCheckpointContext(is_recompute=False, op_output=3)
        net = m.nn.Linear(2, 2)
        parametrize.register_parametrization(net, "weight", m.nn.Identity(), unsafe=True)
        made = parametrize.ParametrizationList([m.nn.Identity()], net.bias, unsafe=False)
        stateless = part(m, "nn.utils.stateless").functional_call
        zeros = {"weight": m.zeros(1, 2), "bias": m.ones(1)}
        return (
            packed.cpu(dtype=m.float64).data.tolist(), packed.cpu() is packed,
            context.is_recompute, context.op_output, net.parametrizations.weight.unsafe,
            made.unsafe, m.nn.RMSNorm(2)(x=m.ones(2)).shape,
            stateless(m.nn.Linear(2, 1), parameters_and_buffers=zeros, args=m.ones(2)).tolist(),
        )  # fmt: skip

    mine, theirs = told(tw), told(torch)
    assert str(mine) == str(theirs)


def test_ranges_of_sizes(torch: Any) -> None:
    def told(m: Any) -> list[Any]:
        said: list[Any] = [m.sym_fresh_size(3)]
        for check in (m.sym_constrain_range, m.sym_constrain_range_for_size):
            for size in (-1, 0, 3, m.tensor(3)):
                for options in (
                    {},
                    {"min": 5},
                    {"max": 2},
                    {"min": 3, "max": 3},
                    {"min": 4, "max": 1},
                ):
                    try:
                        said.append(check(size, **options))
                    except RuntimeError as error:
                        said.append(str(error).partition(", at ")[0])
        return said

    assert told(tw) == told(torch)


class Unknown:
    """An operand that no call takes."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def test_texts_of_refusals(torch: Any) -> None:
    for m in (tw, torch):
        with pytest.raises(RuntimeError, match=r"got \[2\] at entry 0 and \[3, 1\] at entry 2"):
            m.stack([m.ones(2), m.ones(2), m.ones(3, 1)])
        with pytest.raises(RuntimeError, match=r"got \[2\] at entry 0 and \[3\] at entry 1"):
            m.utils.data.default_collate([m.ones(2), m.ones(3)])
        with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
            m.set_rng_state(m.zeros(3))
        with pytest.raises(TypeError, match=r"expected a torch\.ByteTensor, but got list"):
            m.Generator().set_state([1])
        with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch\.mul'"):
            m.mul(Unknown(), 2)
        with pytest.raises(TypeError, match=r"for 'torch\.nn\.functional\.relu'"):
            m.nn.functional.relu(Unknown())


@pytest.mark.filterwarnings("default")
def test_an_unknown_precision_changes_nothing(torch: Any) -> None:
    for m in (tw, torch):
        with pytest.warns(UserWarning, match="x is not one of 'highest', 'high', or 'medium'"):
            m.set_float32_matmul_precision("x")
        assert m.get_float32_matmul_precision() == "highest"
