"""What packages ask of torch beside its documentation, compared with PyTorch."""

from __future__ import annotations

import functools
import importlib
import io
import re
import warnings

import numpy as np
import pytest

import tilewright as tw


class Named:
    """A second base class with attributes of its own."""

    def __init__(self) -> None:
        self._meta = {"a": 1}


def test_a_subclass_with_a_second_base_keeps_its_state_apart() -> None:
    class Both(Named, tw.Tensor):
        pass

    x = tw.arange(3.0).as_subclass(Both)
    x.note = "here"
    y = x > 1
    y.__dict__ = x.__dict__.copy()
    assert x.__dict__ == {"note": "here"} and y.dtype is tw.bool and y.note == "here"
    Named.__init__(x)
    assert x._meta == {"a": 1} and x.shape == (3,) and (x + 1).tolist() == [1, 2, 3]


def test_numpy_without_gradients(torch) -> None:
    for m in (tw, torch):
        x = m.ones(2, requires_grad=True)
        with m.no_grad():
            assert x.numpy().tolist() == np.asarray(x).tolist() == [1, 1]
        with pytest.raises(RuntimeError, match="requires grad"):
            x.numpy()


def test_parts_of_sizes_are_sizes(torch) -> None:
    for m in (tw, torch):
        size = m.zeros(2, 3, 4).shape
        for part in (size[1:], size[:-1] + size, size * 2, size[:0]):
            assert isinstance(part, m.Size)
        assert size[-2:].numel() == 12 and type(size[0]) is int and size[:0].numel() == 1


def test_sizes_are_of_whole_numbers(torch) -> None:
    found = []
    for m in (tw, torch):
        counted = m.Size((2, m.count_nonzero(m.tensor([1, 0, 3])), m.tensor([3]), True))
        assert [type(n) for n in (*counted, *m.Size(m.tensor([2, 3])))] == [int] * 6
        found.append([tuple(counted), {counted: 1}[m.Size([2, 2, 3, 1])]])
        for wrong in ([2.0], [2, m.tensor(2.0)], [m.tensor([2, 3])], "ab"):
            with pytest.raises(TypeError, match=r"iterable of 'int' \(item . is '") as caught:
                m.Size(wrong)
            found[-1].append(str(caught.value).split(", at ")[0])
    assert found[0] == found[1]


def test_tensors_in_groups_by_device_and_dtype(torch) -> None:
    made = []
    for m in (tw, torch):
        group = importlib.import_module(
            f"{m.__name__}.utils._foreach_utils"
        )._group_tensors_by_device_and_dtype
        first = [m.ones(1), m.ones(2).double(), m.ones(3)]
        lists = [first, [None, m.zeros(2), None], []]
        found = {
            (str(device), str(dtype)): (
                [[x if x is None else x.tolist() for x in part] for part in parts],
                places,
            )
            for (device, dtype), (parts, places) in group(lists, with_indices=True).items()
        }
        made.append(found)
        assert all(places == [] for _, places in group([first]).values())
        for wrong in ([first, first[:1]], [[None, *first]], []):
            with pytest.raises(RuntimeError, match=r"xpected|supposed to be defined"):
                group(wrong)
    assert made[0] == made[1]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_gradient_of_softmax_from_its_result(torch, dtype: str) -> None:
    x, g = np.random.RandomState(0).standard_normal((2, 3, 4, 5))
    made = []
    for m in (tw, torch):
        kind = m.float64 if dtype == "float64" else m.float32
        out = m.tensor(x, dtype=kind).softmax(1)
        found = m._softmax_backward_data(m.tensor(g, dtype=kind), out, 1, kind)
        assert found.dtype is kind
        made.append(found.double().numpy())
    assert np.abs(made[0] - made[1]).max() < 1e-6


def test_bases_of_observers_and_of_fake_quantization(torch) -> None:
    for m in (tw, torch):
        quantization = importlib.import_module(f"{m.__name__}.ao.quantization")
        for base in (quantization.ObserverBase, quantization.FakeQuantizeBase):
            assert issubclass(base, m.nn.Module)
            with pytest.raises(TypeError, match="abstract"):
                base(m.quint8) if base is quantization.ObserverBase else base()
        assert issubclass(quantization.MinMaxObserver, quantization.ObserverBase)

        class Rounds(quantization.FakeQuantizeBase):
            def forward(self, x):
                return x.round() if self.fake_quant_enabled else x

            def calculate_qparams(self):
                return None

        rounds = Rounds.with_args()()
        assert sorted(rounds.state_dict()) == ["fake_quant_enabled", "observer_enabled"]
        x = m.tensor([0.6])
        assert rounds(x).item() == 1
        rounds.disable_fake_quant(), rounds.disable_observer()
        assert rounds(x).item() == x.item() and rounds.observer_enabled.tolist() == [0]


def test_what_packages_import_of_several_processes(torch) -> None:
    """Names are there to be compared with; what would need processes says that there are none."""
    fsdp = importlib.import_module("tilewright.distributed.fsdp.fully_sharded_data_parallel")
    theirs = importlib.import_module("torch.distributed.fsdp")
    for name in importlib.import_module("tilewright.distributed.fsdp").__all__:
        assert hasattr(theirs, name)
    assert not isinstance(tw.nn.Linear(1, 1), fsdp.FullyShardedDataParallel)
    for kind in ("ShardingStrategy", "StateDictType", "BackwardPrefetch"):
        ours = {e.name: e.value for e in getattr(fsdp, kind)}
        assert ours == {e.name: e.value for e in getattr(theirs, kind)}
    for kind in ("MixedPrecision", "CPUOffload", "FullStateDictConfig", "MixedPrecisionPolicy"):
        own = getattr(importlib.import_module("tilewright.distributed.fsdp"), kind)
        ignored = {"_module_classes_to_ignore": ()}  # classes of each side
        assert vars(own()) | ignored == vars(getattr(theirs, kind)()) | ignored
    with pytest.raises(RuntimeError, match="not there yet"):
        fsdp.FullyShardedDataParallel(tw.nn.Linear(1, 1))
    with pytest.raises(ValueError, match="Default process group"):
        importlib.import_module("tilewright.distributed.nn.functional").all_reduce(tw.ones(1))


def test_how_a_loader_asks_its_dataset(torch) -> None:
    for m in (tw, torch):
        data = importlib.import_module(f"{m.__name__}.utils.data")
        kinds = importlib.import_module(f"{m.__name__}.utils.data.dataloader")._DatasetKind

        class Stream(data.IterableDataset):
            def __iter__(self):
                return iter(range(2))

        assert data.DataLoader([1, 2])._dataset_kind == kinds.Map == 0
        assert data.DataLoader(Stream())._dataset_kind == kinds.Iterable == 1


@pytest.mark.parametrize("length", [1, 2, 5, 8])
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan(torch, length: int, reverse: bool) -> None:
    def combine(left, right):
        return left[0] * right[0], right[0] * left[1] + right[1]

    given = np.random.RandomState(0).standard_normal((2, 2, length, 3))
    made = []
    for m in (tw, torch):
        path = f"{m.__name__}._higher_order_ops.associative_scan"
        scan = importlib.import_module(path).associative_scan
        xs = tuple(m.tensor(x) for x in given)
        found = scan(combine, xs, dim=1, reverse=reverse, combine_mode="generic")
        made.append([x.numpy() for x in found])
    for ours, theirs in zip(*made):
        assert np.abs(ours - theirs).max() < 1e-12


def test_kernels_for_autocast_come_first_and_can_be_left_out() -> None:
    library = tw.library.Library("asked", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    keys = tw._C.DispatchKeySet(tw._C.DispatchKey.AutocastCPU)

    def cast(x):
        with tw._C._ExcludeDispatchKeyGuard(keys):
            return tw.ops.asked.twice(x.double())

    library.impl("twice", cast, "AutocastCPU")
    x = tw.ones(2)
    assert tw.ops.asked.twice(x).dtype is tw.float32
    with tw.autocast("cpu", dtype=tw.bfloat16):
        assert tw.ops.asked.twice(x).dtype is tw.float64
        assert (x[:, None] @ x[None]).dtype is tw.bfloat16


def test_modules_of_devices_and_names_of_printing() -> None:
    assert tw.get_device_module("cpu") is tw.cpu and tw.get_device_module("cuda") is tw.cuda
    with pytest.raises(RuntimeError, match=r"torch\.meta"):
        tw.get_device_module("meta")
    printing = importlib.import_module("tilewright._tensor_str")
    assert printing._tensor_str(tw.arange(3), 0) == "[0, 1, 2]"
    assert printing._add_suffixes("x([1]", ["n=2"], 2) == "x([1], n=2)"
    assert not importlib.import_module("tilewright._subclasses.fake_tensor").is_fake(tw.ones(1))
    for name in ("rpc", "optim", "device_mesh"):
        assert importlib.import_module(f"tilewright.distributed.{name}") is getattr(
            tw.distributed, name
        )


def test_names_of_the_compiled_part_that_stand_elsewhere(torch) -> None:
    for m in (tw, torch):
        assert m._C._LinAlgError is m.linalg.LinAlgError and m._C._mps_is_available() is False
        assert m._C._show_config() == m.__config__.show()
        assert m._C.TensorType and m._C.Value and m._C.Node


def test_names_of_the_compiled_part_that_packages_mention(torch) -> None:
    for name in ("Graph", "Node", "Value", "ScriptObject"):  # in annotations and isinstance
        assert isinstance(getattr(torch._C, name), type)
        assert not isinstance(tw.ones(1), getattr(tw._C, name))
    assert tw._C._get_default_device() == torch._C._get_default_device()
    assert tw._C._get_accelerator().type == torch._C._get_accelerator().type


def test_tensors_from_the_parts_in_pickles(torch) -> None:
    """As packages that read PyTorch's pickles themselves build them."""

    def run(m):
        storage = m.arange(6.0).storage()
        t = m._utils._rebuild_tensor_v2(storage, 1, (2, 2), (2, 1), True, {})
        p = m._utils._rebuild_parameter(t.detach(), False, {})
        return t.tolist(), t.requires_grad, t.stride(), type(p) is m.nn.Parameter, p.requires_grad

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # typed storages are deprecated
        assert run(tw) == run(torch)


@pytest.mark.parametrize("shift, dtype", [(5e-5, "float32"), (2e-4, "float32"), (1e-6, "float64")])
def test_the_older_comparison(torch, shift: float, dtype: str) -> None:
    def run(m):
        x = m.ones(2, dtype=getattr(m, dtype))
        try:
            with pytest.warns(FutureWarning, match="assert_allclose"):
                m.testing.assert_allclose(x + shift, x)
        except AssertionError:
            return False
        return True

    assert run(tw) == run(torch)


def test_timers_tell_as_pytorchs(torch) -> None:
    def run(m):
        benchmark = importlib.import_module(f"{m.__name__}.utils.benchmark")
        timers = [
            benchmark.Timer(
                "x + 1", globals={"x": m.ones(3)}, label="sum", sub_label=name, description="d"
            )
            for name in ("a", "bb")
        ]
        found = [t.timeit(20) for t in timers] + [timers[0].blocked_autorange(min_run_time=0.005)]
        for each in found:
            assert each.median > 0 and each.number_per_run * len(each.times) >= 20
            assert each.iqr >= 0 and len(each.raw_times) == len(each.times)
        texts = [re.sub(r"0x\w+|[\d.]+ [nmu]?s|^<.*\n", "", repr(m)) for m in found[:2]]
        table = str(benchmark.Compare(found[:2]))
        rows = [line.split("|")[0].rstrip() for line in table.split("\n") if "|" in line]
        return texts, rows, table.split("\n")[-1][:9], [len(benchmark.Measurement.merge(found[:2]))]

    ours, theirs = run(tw), run(torch)
    assert ours[:2] == theirs[:2] and ours[3] == theirs[3]


def test_switches_of_the_compiler_are_set_and_reset() -> None:
    config = importlib.import_module("tilewright._inductor.config")
    assert config is tw._inductor.config and not config.triton.cudagraphs
    with config.patch({"max_autotune": True, "triton.cudagraphs": True}):
        assert config.max_autotune and config.triton.cudagraphs
    assert not config.max_autotune and not config.triton.cudagraphs
    with tw._tensor_str.printoptions(precision=2):
        assert str(tw.tensor([1.23456])) == "tensor([1.23])"
    assert str(tw.tensor([1.23456])) == "tensor([1.2346])"
    with (
        pytest.warns(FutureWarning, match="sdpa_kernel"),
        tw.backends.cuda.sdp_kernel(enable_flash=False),
    ):
        assert not tw.backends.cuda.flash_sdp_enabled()
    assert tw.backends.cuda.flash_sdp_enabled()


def test_values_of_a_plain_pickle_of_pytorchs(torch) -> None:
    """Packages ship tables that were pickled without torch.save."""
    storage = importlib.import_module("tilewright.storage")
    buffer = io.BytesIO()
    torch.save(torch.arange(3, dtype=torch.int16).untyped_storage(), buffer)
    loaded = storage._load_from_bytes(buffer.getvalue())
    assert bytes(loaded) == np.arange(3, dtype=np.int16).tobytes()


def test_tensors_in_one_vector(torch) -> None:
    def run(m):
        utils = importlib.import_module(f"{m.__name__}._utils")
        tensors = [m.arange(4.0).view(2, 2), m.tensor(7.0), m.ones(3)]
        flat = utils._flatten_dense_tensors(tensors)
        parts = utils._unflatten_dense_tensors(flat * 2, tensors)
        return flat.tolist(), type(parts), [p.tolist() for p in parts]

    assert run(tw) == run(torch)


def test_modules_have_the_names_that_are_read_there(torch) -> None:
    pytest.importorskip("tensorboard")
    for m in (tw, torch):
        loaders = importlib.import_module(f"{m.__name__}.utils.data.dataloader")
        assert loaders.RandomSampler is m.utils.data.RandomSampler
        assert loaders.BatchSampler is m.utils.data.BatchSampler
        assert m.serialization.pickle.dumps and m._C._has_xpu is False
        writers = importlib.import_module(f"{m.__name__}.utils.tensorboard.writer")
        assert writers.SummaryWriter is m.utils.tensorboard.SummaryWriter
        fakes = importlib.import_module(f"{m.__name__}._subclasses.fake_tensor")
        with fakes.unset_fake_temporarily() as mode:
            assert mode is None


def test_gradients_by_sample(torch) -> None:
    def run(m, **options):
        home = importlib.import_module(f"{m.__name__}.nn.utils._per_sample_grad")
        layer = m.nn.Linear(3, 2)
        with m.no_grad():
            layer.weight.copy_(m.arange(6.0).view(2, 3) / 7)
            layer.bias.fill_(0.5)
        layer.bias.requires_grad_(False)
        x = m.arange(12.0).view(4, 3) / 5
        call = home.call_for_per_sample_grads(layer, **options)
        call(x).square().sum(1).mean().backward()
        with pytest.raises(RuntimeError, match="grad_sample"):
            home.call_for_per_sample_grads(layer, **options)
        assert layer.weight.grad is None
        return layer.weight.grad_sample.numpy()

    for options in ({}, {"loss_reduction": "mean"}, {"batch_size": 4}):
        np.testing.assert_allclose(run(tw, **options), run(torch, **options), rtol=1e-5)
    home = importlib.import_module("tilewright.nn.utils._per_sample_grad")
    with pytest.raises(RuntimeError, match="sum or mean"):
        home.call_for_per_sample_grads(tw.nn.Linear(3, 2), loss_reduction="all")
    with pytest.raises(RuntimeError, match="batch_size"):
        home.call_for_per_sample_grads(tw.nn.Bilinear(3, 3, 2))(tw.ones(2, 3), tw.ones(1, 3))


def test_the_protocol_of_parameters_asks_no_class(torch) -> None:
    def run(m):
        asked = []

        class Recorder(m.Tensor):
            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                asked.append(func.__name__)
                made = m.nn.Parameter.__torch_function__(func, types, args, kwargs)
                return made.as_subclass(cls)

        x = m.ones(2, 3).as_subclass(Recorder)
        made = m.nn.functional.relu(x)
        return type(made) is Recorder, asked

    assert run(tw) == run(torch)


def test_lists_of_tensors_of_limited_bytes(torch) -> None:
    def run(m):
        utils = importlib.import_module(f"{m.__name__}._utils")
        sizes = [3, 1, 9, 2, 2, 1]
        tensors = [m.zeros(n, dtype=m.float64 if n == 2 else m.float32) for n in sizes]
        return [[t.numel() for t in part] for part in utils._take_tensors(tensors, 16)]

    assert run(tw) == run(torch)


def test_a_workers_error_is_raised_again(torch) -> None:
    def run(m):
        utils = importlib.import_module(f"{m.__name__}._utils")
        try:
            raise ValueError("of the worker")
        except ValueError:
            kept = utils.ExceptionWrapper(where="in a thread")
        with pytest.raises(ValueError, match="Caught ValueError in a thread") as raised:
            kept.reraise()
        return "of the worker" in str(raised.value)

    assert run(tw) and run(torch)


def test_names_that_packages_import(torch) -> None:
    def run(m):
        def of(path):
            return importlib.import_module(f"{m.__name__}.{path}")

        precision = m.tensor([[2.0, 0.5], [0.5, 1.0]])
        factor = of("distributions.multivariate_normal")._precision_to_scale_tril(precision)
        clipped = of("distributions.transforms")._clipped_sigmoid(m.tensor([-200.0, 0.0, 200.0]))
        image, weight = m.ones(1, 2, 4, 4), m.ones(1, 2, 3, 3)
        switches = (False, False, True, False)
        convolved = m.ops.aten._convolution(
            image, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, *switches
        )
        pin = of("utils.data._utils.pin_memory").pin_memory
        mixin = of("nn.modules.conv")._ConvTransposeMixin
        fsdp = of("distributed.fsdp.api")
        offloads = fsdp.LocalOptimStateDictConfig(), fsdp.LocalStateDictConfig()
        assert fsdp.StateDictSettings and not any(each.offload_to_cpu for each in offloads)
        assert of("_C").ScriptMethod and of("utils._device")
        assert of("distributed._tensor.experimental").implicit_replication
        assert of("utils.data.dataloader")._collate_fn_t
        return (
            factor.numpy().round(5).tolist(),
            clipped.numpy().tolist(),
            convolved.numpy().tolist(),
            pin({"x": ["a", 1]}),
            isinstance(m.nn.ConvTranspose2d(1, 1, 1), mixin),
        )

    assert run(tw) == run(torch)


@pytest.mark.filterwarnings("ignore:_check_is_size will be removed:FutureWarning")
def test_numbers_that_are_sizes(torch) -> None:
    for m in (tw, torch):
        m._check_is_size(3)
        m._check_is_size(3, max=3)
        for number, options in ((-1, {}), (3, {"max": 2})):
            with pytest.raises(RuntimeError):
                m._check_is_size(number, **options)


def test_a_warning_is_given_once() -> None:
    utils = importlib.import_module("tilewright._dynamo.utils")
    with pytest.warns(UserWarning, match="said once"):
        utils.warn_once("said once")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        utils.warn_once("said once")


@pytest.mark.parametrize("least", [0, 10])
def test_wrapping_by_a_policy(torch, least: int) -> None:
    def wrapped(m, only: bool):
        class Wrapper(m.nn.Module):
            def __init__(self, module, tag: int) -> None:
                super().__init__()
                self.module, self.tag = module, tag

        wrap = importlib.import_module(f"{m.__name__}.distributed.fsdp.wrap")
        inner = m.nn.Sequential(m.nn.Linear(3, 4), m.nn.ReLU())
        net = m.nn.Sequential(m.nn.Linear(2, 3), inner, m.nn.ModuleList([m.nn.Linear(1, 1)]))
        policy = functools.partial(wrap.size_based_auto_wrap_policy, min_num_params=least)
        ignored = {inner[0].bias}
        made, count = wrap._recursive_wrap(net, policy, Wrapper, {net[2]}, ignored, only, tag=3)
        with pytest.raises(AssertionError, match="already wrapped"):
            wrap._recursive_wrap(Wrapper(net, 1), policy, Wrapper, set(), set(), tag=1)
        return [(n, type(k).__name__, getattr(k, "tag", 0)) for n, k in made.named_modules()], count

    for only in (False, True):
        assert wrapped(tw, only) == wrapped(torch, only)


def test_a_shuffled_pipe_says_so_at_pytorchs_path(torch) -> None:
    for m in (tw, torch):
        pipes = importlib.import_module(f"{m.__name__}.utils.data.datapipes.iter")
        home = importlib.import_module(f"{m.__name__}.utils.data.datapipes.iter.combinatorics")
        pipe = pipes.IterableWrapper([1, 2]).shuffle()
        assert isinstance(pipe, home.ShufflerIterDataPipe) and pipe._enabled
        assert not pipe.set_shuffle(False)._enabled


def test_a_loader_that_gets_its_sampler_later(torch) -> None:
    for m in (tw, torch):
        loader = m.utils.data.DataLoader(m.arange(4), batch_size=2)
        with pytest.raises(ValueError, match="should not be set"):
            loader.batch_sampler = [[0], [3]]
        loader._DataLoader__initialized = False
        loader.batch_sampler = [[0], [3]]
        assert [batch.tolist() for batch in loader] == [[0], [3]]


def test_a_module_that_stands_for_one_on_another_device(torch) -> None:
    for m in (tw, torch):
        layer = m.nn.BatchNorm1d(2)
        layer.inner, layer.note = m.nn.ReLU(), ["shared"]
        other = layer._replicate_for_data_parallel()
        assert type(other) is type(layer) and other._is_replica and other.note is layer.note
        assert not other._parameters and "weight" not in other.__dict__
        assert other.inner is layer.inner and other.running_mean is layer.running_mean
        other.weight, other.running_mean = m.full((2,), 3.0), m.ones(2)
        assert layer.weight.tolist() == [1, 1] and layer.running_mean.tolist() == [0, 0]
        other.inner = m.nn.Tanh()
        assert isinstance(layer.inner, m.nn.ReLU)


def test_softmax_asks_what_is_no_tensor(torch) -> None:
    class Scores:
        def softmax(self, dim, **options):
            return dim, options

        log_softmax = softmax

    for m in (tw, torch):
        for f in (m.nn.functional.softmax, m.nn.functional.log_softmax):
            assert f(Scores(), dim=-1) == (-1, {})
            assert f(Scores(), -1, dtype=m.float64) == (-1, {"dtype": m.float64})
            with pytest.raises((TypeError, AttributeError)):
                f(3, dim=-1)


def test_gradients_between_processes_are_not_there(torch) -> None:
    assert torch.distributed.autograd.is_available()
    ours = importlib.import_module("tilewright.distributed.autograd")
    assert not ours.is_available() and {"context", "backward", "get_gradients"} <= {*ours.__all__}
    for call in (ours.context, lambda: ours.get_gradients(1), lambda: ours.backward(1, [])):
        with pytest.raises(RuntimeError, match=r"distributed"):
            call()
