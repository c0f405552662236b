"""Rules that the examples of PyTorch's documentation show, each beside PyTorch."""

from __future__ import annotations

import datetime
import io
import itertools
import math
import pickle
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [
    pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled"),
]


def same(ours: Any, theirs: Any, rtol: float = 1e-6) -> None:
    """Equal values, dtypes and signs of zeros."""
    assert str(ours.dtype) == str(theirs.dtype)
    a, b = ours.detach().numpy(), theirs.detach().numpy()
    np.testing.assert_allclose(a, b, rtol=rtol)
    if a.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(a[a == 0]), np.signbit(b[b == 0]))


def outcome(call: Callable[[], Any]) -> Any:
    """The values of a call, or the class of its error."""
    try:
        return call().tolist()
    except Exception as error:
        return type(error)


# ---- arithmetic


def test_no_bool_is_subtracted(torch: Any) -> None:
    kinds = ("float", "int", "bool", "True")

    def given(of: Any, kind: str) -> Any:
        made = {"float": [1.5, 2.0], "int": [1, 2], "bool": [True, False], "True": True}[kind]
        return made if kind == "True" else of.tensor(made)

    for left, right in itertools.product(kinds, kinds):
        if left == right == "True":
            continue
        for name in ("sub", "rsub", "minus", "sub_"):
            found = []
            for of in (tw, torch):
                a, b = given(of, left), given(of, right)
                call = {
                    "sub": lambda a=a, b=b, of=of: of.sub(a, b),
                    "rsub": lambda a=a, b=b, of=of: of.rsub(a, b),
                    "minus": lambda a=a, b=b: a - b,
                    "sub_": lambda a=a, b=b: a.sub_(b),
                }[name]
                found.append(outcome(call))
            if name != "rsub" or left != "True":  # its first operand is no number
                ours, theirs = (AttributeError if f is TypeError else f for f in found)
                assert ours == theirs, (left, right, name)


def test_a_bool_is_no_factor_of_numbers() -> None:
    x, b = tw.ones(2), tw.tensor([True, False])
    for function in (tw.add, tw.sub):
        for alpha in (True, False):
            with pytest.raises(RuntimeError, match="Boolean alpha"):
                function(x, x, alpha=alpha)
    assert tw.add(b, b, alpha=True).tolist() == [True, False]


@pytest.mark.parametrize("decimals", [-3, -2, -1, 1, 3])
def test_rounding_to_decimals(torch: Any, decimals: int) -> None:
    numbers = [1200.1234567, -1650.0, 499.0, 2.5e3, 0.00049, -0.0]
    for dtype in ("float32", "float64"):
        ours = tw.tensor(numbers, dtype=getattr(tw, dtype)).round(decimals=decimals)
        theirs = torch.tensor(numbers, dtype=getattr(torch, dtype)).round(decimals=decimals)
        same(ours, theirs, rtol=0)
    with pytest.raises(NotImplementedError, match="decimals"):
        tw.tensor([125]).round(decimals=decimals)


@pytest.mark.computes
@pytest.mark.parametrize("divisor", [2.0, -2.0, 1.5, math.inf, -math.inf])
def test_a_remainder_of_zero_has_the_sign_of_the_dividend(torch: Any, divisor: float) -> None:
    numbers = [*np.arange(-20.0, 20.5, 0.5).tolist(), -0.0, math.nan]
    for dtype in ("float32", "float64", "float16"):
        x, y = (m.tensor(numbers, dtype=getattr(m, dtype)) for m in (tw, torch))
        same(x.remainder(divisor), y.remainder(divisor))
        same(x.remainder(tw.full_like(x, divisor)), y.remainder(torch.full_like(y, divisor)))


def test_threshold_of_whole_numbers(torch: Any) -> None:
    for dtype in ("int64", "int32", "uint8"):
        x, y = (m.tensor([1, 2, 3], dtype=getattr(m, dtype)) for m in (tw, torch))
        same(tw.nn.functional.threshold(x, 1.9, 20.7), torch.nn.functional.threshold(y, 1.9, 20.7))
        same(tw.nn.Threshold(1, 9, inplace=True)(x), torch.nn.Threshold(1, 9, inplace=True)(y))


SEGMENTS = ("sum", "mean", "max", "min", "prod")


@pytest.mark.parametrize("reduce", SEGMENTS)
@pytest.mark.parametrize("initial", [None, 2.5])
def test_segments_are_reduced(torch: Any, reduce: str, initial: float | None) -> None:
    numbers = [[1.0, 2], [3, 3], [3, -1], [5, 2], [7, 2]]
    found = []
    for of in (tw, torch):
        x = of.tensor(numbers, requires_grad=True)
        y = of.segment_reduce(x, reduce, lengths=of.tensor([2, 1, 2]), initial=initial)
        (y * of.arange(1.0, 7).view(3, 2)).sum().backward()
        z = of.segment_reduce(x, reduce, offsets=of.tensor([0, 2, 2, 4]), initial=initial)
        rows = of.tensor([[2, 0], [0, 2], [1, 1], [1, 1], [2, 0]])
        across = of.segment_reduce(x, reduce, lengths=rows, axis=1, initial=initial)
        found.append((y, x.grad, z, across))
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize(
    "change",
    [
        {"lengths": None},
        {"lengths": [1, 2]},
        {"lengths": [6, -1]},
        {"lengths": [1, 1], "axis": 1},
        {"reduce": "median"},
        {"data": [1, 2, 3, 4, 5]},
    ],
    ids=str,
)
def test_segments_that_are_refused(torch: Any, change: dict[str, Any]) -> None:
    kinds = []
    for of in (tw, torch):
        given = {"data": [[1.0, 2]] * 5, "reduce": "sum", "lengths": [2, 0, 3], **change}
        lengths = given.pop("lengths")
        data = of.tensor(given.pop("data"))
        given["lengths"] = None if lengths is None else of.tensor(lengths)
        with pytest.raises((RuntimeError, NotImplementedError)) as error:
            of.segment_reduce(data, given.pop("reduce"), **given)
        kinds.append(error.type)
    assert kinds[0] is kinds[1]


# ---- gradients


def test_a_hook_writes_to_the_leaf_whose_gradient_it_got(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        v = of.zeros(3, requires_grad=True)
        v.register_post_accumulate_grad_hook(lambda p: p.add_(p.grad, alpha=-0.01))
        for _ in range(3):
            v.backward(of.tensor([1.0, 2.0, 3.0]))
        found.append(v)
    same(*found)


def test_an_optimizer_steps_in_the_backward_pass(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        weights = [of.linspace(-1, 1, 4).reshape(2, 2).requires_grad_() for _ in range(3)]
        steps = {w: of.optim.Adam([w], foreach=False, lr=0.1) for w in weights}

        def hook(w: Any, steps: Any = steps) -> None:
            steps[w].step()
            steps[w].zero_grad()

        for w in weights:
            w.register_post_accumulate_grad_hook(hook)
        for _ in range(4):
            x = of.linspace(-1, 1, 6).reshape(3, 2)
            for w in weights:
                x = of.tanh(x @ w)
            (x**2).sum().backward()
        assert all(w.grad is None for w in weights)
        found.append(weights)
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs, rtol=1e-4)


def test_gradients_of_another_dtype(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        x = of.tensor([1.0, 2.0], requires_grad=True)
        assert x.grad_dtype is of.float32
        x.grad_dtype = of.float16
        assert x.grad_dtype is of.float16
        for _ in range(2):
            (x * 3.1).sum().backward()
        with pytest.raises(RuntimeError, match="already a gradient"):
            x.grad_dtype = of.float32
        with pytest.raises(RuntimeError, match="grad_dtype"):
            x.grad = of.ones(2)
        held = x.grad
        (by_call,) = of.autograd.grad((x * 2).sum(), x)
        x.grad, x.grad_dtype = None, None
        x.grad = of.ones(2, dtype=of.float64)
        (x * 2).sum().backward()
        with pytest.raises(RuntimeError, match="leaf"):
            (x * 2).grad_dtype = of.float16
        found.append((held, by_call, x.grad))
    for ours, theirs in zip(*found, strict=True):
        same(ours, theirs)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_the_grid_of_a_sample_has_a_gradient(torch: Any, mode: str) -> None:
    found = []
    for of in (tw, torch):
        grid = of.linspace(-1.2, 1, 16).reshape(1, 2, 4, 2).requires_grad_()
        image = of.arange(9.0).reshape(1, 1, 3, 3).requires_grad_()
        of.nn.functional.grid_sample(image, grid, mode, align_corners=False).sum().backward()
        found.append((grid.grad, image.grad))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=1e-5)


def test_values_are_packed_in_the_order_of_the_operands(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        seen: list[list[float]] = []

        def pack(x: Any, seen: Any = seen) -> Any:
            seen.append(x.tolist())
            return x

        a, b = of.ones(2, requires_grad=True), of.full((2,), 2.0, requires_grad=True)
        with of.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
            (a * b).exp()
            a**b
        found.append(seen)
    assert found[0] == found[1]


def test_a_mode_calls_on_without_asking_again(torch: Any) -> None:
    found = []
    for of in (tw, torch):
        seen: list[str] = []

        class Log(of.overrides.TorchFunctionMode):  # type: ignore[name-defined, misc]
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                seen.append(func.__name__)  # noqa: B023
                with self:
                    return of.overrides.redispatch_function(func, types, args, kwargs)  # noqa: B023

        def scaled(a: Any, b: Any, of: Any = of) -> Any:
            if of.overrides.has_torch_function((a, b)):
                return of.overrides.handle_torch_function(scaled, (a, b), a, b)
            return a * b + 1

        a = of.tensor([3.0])
        with Log():
            scaled(a, a)
            of.add(a, a)
        found.append(seen)
    assert found[0] == found[1]


# ---- names


def test_a_dtype_is_of_the_class_dtype(torch: Any) -> None:
    assert type(tw.float32).__name__ == type(torch.float32).__name__ == "dtype"
    linear = "torch.nn.modules.linear.Linear"
    for of in (tw, torch):
        assert of.typename(of.nn.Parameter) == "torch.nn.parameter.Parameter"
        assert of.typename(of.nn.Linear(1, 1)) == linear
        assert of.typename(of.float32) == "torch.dtype"


def test_streams_and_events_of_no_gpu(torch: Any) -> None:
    if tw.cuda.is_available():
        pytest.skip("there is a GPU")
    for of in (tw, torch):
        event, stream = of.Event(), of.Stream()
        assert event.device == stream.device == of.device("cpu")
        assert event.query() and stream.query()
        stream.wait_event(event)
        assert stream.device_type == 0 and not stream.is_capturing()
        with pytest.raises(RuntimeError, match="native handle"):
            _ = stream.native_handle
        with pytest.raises(RuntimeError, match="doesn't support events"):
            event.record()
        with pytest.raises(RuntimeError, match="not linked"):
            of.Event(device="cuda")
        with pytest.raises(ValueError, match="enable_timing"):
            event.elapsed_time(of.Event())
        with pytest.raises(ValueError, match="recorded before"):
            of.Event(enable_timing=True).elapsed_time(of.Event(enable_timing=True))


def test_orders_of_dimensions(torch: Any) -> None:
    checks = (True, False, "other", "contiguous_format", ["contiguous_format"])
    for check, shape in itertools.product(checks, [(2, 3, 4), (1, 2, 3), ()]):
        found = []
        for of in (tw, torch):
            given = [getattr(of, f) for f in check] if isinstance(check, list) else check
            for x in (of.empty(shape), of.empty(shape).mT if shape else of.empty(4, 3).T):
                try:
                    found.append(x.dim_order(ambiguity_check=given))
                except (RuntimeError, TypeError) as error:
                    found.append(type(error))
        assert found[:2] == found[2:], (check, shape)


def test_no_generator_of_a_missing_gpu(torch: Any) -> None:
    if tw.cuda.is_available():
        pytest.skip("there is a GPU")
    for of in (tw, torch):
        with pytest.raises(RuntimeError, match="CUDA generator"):
            of.Generator(device="cuda")


def test_a_repository_without_a_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    import urllib.error

    from tilewright import hub

    def fail(*args: Any, **options: Any) -> None:
        raise urllib.error.URLError("no route")

    monkeypatch.setattr(hub, "download_url_to_file", fail)
    monkeypatch.setattr(hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(RuntimeError, match="no internet connection"):
        hub.list("owner/name")


def test_statistics_over_windows(torch: Any) -> None:
    import torch.monitor as theirs

    import tilewright.monitor as ours

    found = []
    for of in (ours, theirs):
        seen: list[Any] = []
        handler = of.register_event_handler(seen.append)
        kinds = [getattr(of.Aggregation, n) for n in "MEAN COUNT SUM MAX MIN".split()]
        stat = of.Stat("loss", kinds, datetime.timedelta(milliseconds=5), 4)
        for x in (3.0, -1.0, 2.0, 7.0, 9.0):
            stat.add(x)
        held = {kind.name: value for kind, value in stat.get().items()}
        time.sleep(0.01)
        count = stat.count
        of.unregister_event_handler(handler)
        of.log_event(of.Event("unseen", datetime.datetime.now(), {}))
        found.append((held, count, [(e.name, dict(e.data)) for e in seen]))
    assert found[0] == found[1]
    stat = ours.Stat("last", [ours.VALUE], datetime.timedelta(seconds=60))  # PyTorch's is empty
    stat.add(3.0)
    stat.add(1.0)
    assert stat.get() == {ours.VALUE: 1.0}


def test_a_benchmark_of_threads(torch: Any) -> None:
    for of in (tw, torch):
        benchmark = of.utils.ThroughputBenchmark(of.nn.Linear(3, 4))
        benchmark.add_input(of.ones(2, 3))
        benchmark.add_input(input=of.ones(1, 3))
        assert benchmark.run_once(of.ones(2, 3)).shape == (2, 4)
        stats = benchmark.benchmark(num_calling_threads=2, num_warmup_iters=1, num_iters=20)
        assert stats.num_iters >= 20 and stats.latency_avg_ms > 0
        assert "Average latency per example" in str(stats)


class Marked(tw.Tensor):
    """A tensor with a class of its own."""


def test_a_tensor_keeps_its_class_in_files() -> None:
    file = io.BytesIO()
    tw.save(tw.arange(3.0).as_subclass(Marked), file)
    file.seek(0)
    with pytest.raises(Exception, match="Marked"):
        tw.load(file)
    file.seek(0)
    with tw.serialization.safe_globals([Marked]):
        back = tw.load(file)
    assert type(back) is Marked and back.tolist() == [0, 1, 2]

    class Unnamed(tw.Tensor):
        pass

    with pytest.raises((AttributeError, pickle.PicklingError)):
        tw.save(tw.ones(2).as_subclass(Unnamed), io.BytesIO())


def test_files_without_elements() -> None:
    x = tw.arange(6.0)
    with tempfile.NamedTemporaryFile() as file:
        with tw.serialization.skip_data():
            tw.save(x, file.name)
        assert tw.load(file.name).tolist() == [0] * 6
        tw.save(x, file.name)
        with tw.serialization.skip_data():
            assert tw.load(file.name).tolist() == [0] * 6
        assert tw.load(file.name).tolist() == x.tolist()


def test_a_package_says_where_storages_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.serialization import locations

    monkeypatch.setattr(locations, "_packages", [])
    tag = lambda storage: "ipu" if storage.nbytes() == 24 else None  # noqa: E731
    back = lambda storage, word: storage if word == "ipu" else None  # noqa: E731
    tw.serialization.register_package(11, tag, back)
    file = io.BytesIO()
    tw.save([tw.arange(6.0), tw.ones(2)], file)
    assert b"ipu" in file.getvalue()
    file.seek(0)
    assert [x.tolist() for x in tw.load(file)] == [[0, 1, 2, 3, 4, 5], [1, 1]]
    locations._packages.clear()
    file.seek(0)
    with pytest.raises(RuntimeError, match="ipu"):
        tw.load(file)


def test_gradcheck_of_sparse_tensors(torch: Any) -> None:
    for of in (tw, torch):
        check = of.sparse.as_sparse_gradcheck(of.autograd.gradcheck)
        x = of.tensor([[0, 1], [2, 3]], dtype=of.float64).to_sparse_coo().requires_grad_(True)
        dense = of.tensor([[1.0, 2], [3, 4]], dtype=of.float64)
        assert check(lambda t: t.to_sparse_csr(), x)
        assert check(lambda t, dense=dense, of=of: of.sparse.mm(t, dense), x)


@pytest.mark.parametrize("layout", ["csr", "csc"])
def test_a_compressed_tensor_is_filled_at_its_positions(torch: Any, layout: str) -> None:
    for value in (0, 3):
        made = []
        for of in (tw, torch):
            x = getattr(of.eye(3), f"to_sparse_{layout}")()
            full = of.full_like(x, value)
            assert full.values().numel() == 3 and of.zeros_like(x).values().numel() == 0
            made.append(full)
        same(made[0].values(), made[1].values())


def test_the_largest_terms_of_a_sparse_product(torch: Any) -> None:
    for how in ("max", "min"):
        found = []
        for of in (tw, torch):
            a = of.tensor([[1.0, 0, 2], [0, 3, 0]]).to_sparse_csr()
            b = of.arange(6.0).view(3, 2) - 2
            found.append(of.sparse.mm(a, b, f"a{how}") if of is torch else of.sparse.mm(a, b, how))
        same(*found)


def test_kernels_of_operators_and_their_vmap() -> None:
    for key in ("CPU", tw._C.DispatchKey.CPU):
        kernel = tw.library.get_kernel("aten::add.Tensor", key)
        assert kernel.call_boxed(None, tw.ones(2), tw.ones(2)).tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="no operator"):
        tw.library.get_kernel("aten::nothing", "CPU")

    @tw.library.custom_op("rules::product", mutates_args=())
    def product(x: tw.Tensor, y: tw.Tensor) -> tw.Tensor:
        return tw.tensor(x.numpy() * y.numpy())

    seen = []

    @tw.library.register_vmap("rules::product")
    def _(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
        seen.append((info.batch_size, in_dims))
        return product(x, y.unsqueeze(0)), 0

    x, y = tw.arange(6.0).view(2, 3), tw.tensor([2.0, 3.0, 4.0])
    assert tw.vmap(product, (0, None))(x, y).tolist() == (x * y).tolist()
    assert seen == [(2, (0, None))]


def test_backends_by_default() -> None:
    assert tw.compiler.get_default_backend() == "inductor"
    tw.compiler.set_default_backend("eager")
    assert tw.compiler.get_default_backend() == "eager"
    tw.compiler.set_default_backend(None)
    assert tw.compiler.get_default_backend() == "inductor"


def test_what_is_refused() -> None:
    for name in ("rename_privateuse1_backend", "generate_methods_for_privateuse1_backend"):
        with pytest.raises(NotImplementedError, match="dispatcher"):
            getattr(tw.utils, name)("foo")
    with pytest.raises(RuntimeError, match="compile"):
        tw.autograd.graph.region_activation_memory_budget(0.5)
