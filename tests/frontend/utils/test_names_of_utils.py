"""Small classes of torch.utils and torch.nn, beside PyTorch."""

from __future__ import annotations

import gc
import importlib
from typing import Any

import pytest

import tilewright
import tilewright.utils.file_baton
import tilewright.utils.weak


def test_dictionaries_by_identity(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        table = T.utils.weak.WeakIdKeyDictionary()
        a, b = T.ones(2), T.ones(2)
        a.tolist(), b.tolist()  # values that nobody waits for are not kept
        table[a], table[b] = "a", "b"
        found = [table[a], table[b], len(table), a in table, table.get(T.ones(2)), 3 in table]
        copied = table.copy()
        found.append(table.pop(a))
        del b
        gc.collect()
        found += [len(list(table)), len(list(copied)), table.setdefault(a, 5), len(table.keyrefs())]
        kept = T.ones(1)
        kept.tolist()
        reference = T.utils.weak.TensorWeakRef(kept)
        found.append(reference() is kept)
        del kept
        gc.collect()
        return [*found, reference() is None]

    assert run(tilewright) == run(torch)


def test_swapped_tensors(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        a, b = T.arange(3.0), T.nn.Parameter(T.ones(2, 2))
        a.note = "of a"
        T.utils.swap_tensors(a, b)
        return [
            a.tolist(), type(a).__name__, b.tolist(), type(b).__name__, b.note, hasattr(a, "note"),
            a.requires_grad, (a * 2).sum().item(),
        ]  # fmt: skip

    assert run(tilewright) == run(torch)


def test_a_tensor_that_had_views_is_swapped(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        a, b = T.arange(3.0), T.ones(2, 2)
        total = (a.view(3, 1) + 1).sum().item()
        T.utils.swap_tensors(a, b)
        return [total, a.tolist(), b.tolist(), a[0]._base is a, b[:1]._base is b]

    assert run(tilewright) == run(torch)


def test_modules_are_tracked(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        importlib.import_module(f"{T.__name__}.utils.module_tracker")
        seen = []
        net = T.nn.Sequential(T.nn.Linear(2, 2), T.nn.ReLU())

        class Looking(T.nn.Module):
            def forward(self, x: Any) -> Any:
                seen.append(sorted(tracker.parents))
                return x

        net.append(Looking())
        with T.utils.module_tracker.ModuleTracker() as tracker:
            net(T.ones(1, 2)).sum().backward()
        return [*seen, tracker.parents]

    assert run(tilewright) == run(torch)


def test_hooks_of_all_modules(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        seen: list[Any] = []
        place = T.nn.modules.module
        handles = [
            place.register_module_forward_pre_hook(
                lambda m, args: seen.append(f"pre {type(m).__name__}")
            ),
            place.register_module_forward_hook(lambda m, args, out: out + 1),
            place.register_module_full_backward_hook(
                lambda m, grad_in, grad_out: seen.append(f"back {type(m).__name__}")
            ),
            place.register_module_parameter_registration_hook(
                lambda m, name, p: seen.append(f"parameter {name}")
            ),
            place.register_module_module_registration_hook(
                lambda m, name, child: seen.append(f"module {name}")
            ),
        ]
        try:
            net = T.nn.Sequential(T.nn.Linear(2, 1), T.nn.ReLU())
            net[0].register_forward_hook(lambda m, args, out: out * 2)
            T.nn.init.ones_(net[0].weight), T.nn.init.zeros_(net[0].bias)
            out = net(T.ones(1, 2, requires_grad=True))
            out.sum().backward()
        finally:
            for handle in handles:
                handle.remove()
        return [seen, out.tolist(), net(T.ones(1, 2)).tolist()]

    assert run(tilewright) == run(torch)


def test_one_process_holds_a_file(tmp_path: Any) -> None:
    path = str(tmp_path / "lock")
    one, other = (tilewright.utils.file_baton.FileBaton(path, 0.01) for _ in range(2))
    assert one.try_acquire() and not other.try_acquire()
    one.release()
    other.wait()
    assert other.try_acquire()
    other.release()


def test_dictionaries_of_parameters(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        made = T.nn.ParameterDict({"a": T.ones(1), "b": T.zeros(2)})
        other = made.copy()
        found: list[Any] = [made.pop("a").tolist(), list(made), made.get("x", 3), list(other)]
        found += [made.setdefault("c", T.ones(3)).shape[0], list(reversed(made))]
        found += [
            list(made | {"z": T.ones(1)}),
            made.popitem()[0],
            list(made.fromkeys(["k"], None)),
        ]
        made.clear()
        return [*found, len(made), len(list(made.parameters()))]

    assert run(tilewright) == run(torch)


def test_modules_are_set_by_path(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        net = T.nn.Sequential(T.nn.Sequential(T.nn.Linear(1, 1)))
        net.set_submodule("0.0", T.nn.ReLU())
        found = [repr(net)]
        for target, module in (("0.0", 3), ("x.y", T.nn.ReLU()), ("", T.nn.ReLU())):
            try:
                net.set_submodule(target, module, strict=True)
            except (ValueError, AttributeError) as error:
                found.append(type(error).__name__)
        return found

    assert run(tilewright) == run(torch)


def test_points_of_sobol(torch: Any) -> None:
    pytest.importorskip("scipy")
    ours = tilewright.quasirandom.SobolEngine(5)
    theirs = torch.quasirandom.SobolEngine(5)
    assert ours.draw(3).tolist() == theirs.draw(3).tolist()
    ours.fast_forward(4), theirs.fast_forward(4)
    assert ours.draw(2).tolist() == theirs.draw(2).tolist()
    ours.reset(), theirs.reset()
    assert ours.draw_base2(3).tolist() == theirs.draw_base2(3).tolist() and repr(ours) == repr(
        theirs
    )
    points = tilewright.quasirandom.SobolEngine(2, scramble=True, seed=3).draw(256)
    counts = (points * 4).long() @ tilewright.tensor([4, 1])
    assert tilewright.bincount(counts, minlength=16).tolist() == [16] * 16  # even in each cell
    with pytest.raises(ValueError, match="power of 2"):
        ours.draw(1), ours.draw_base2(2)
    with pytest.raises(ValueError, match="range of dimensionality"):
        tilewright.quasirandom.SobolEngine(0)


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_dual_numbers(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        fw = T.autograd.forward_ad
        x = T.tensor([1.0, 2.0], dtype=T.float64)
        w = T.tensor([3.0, -1.0], dtype=T.float64, requires_grad=True)
        with fw.dual_level():
            a = fw.make_dual(x, T.tensor([1.0, 0.5], dtype=T.float64))
            b = fw.make_dual(w, T.tensor([0.0, 2.0], dtype=T.float64))
            primal, tangent = fw.unpack_dual((a * b).sin() + a.exp() * 2)
            none = fw.unpack_dual(T.ones(1)).tangent
            back = fw.unpack_dual(a)
            (grad,) = T.autograd.grad(tangent.sum(), w)
        with pytest.raises(RuntimeError, match="no level exists"):
            fw.make_dual(x, x)
        with fw.dual_level(), pytest.raises(ValueError, match="floating point"):
            fw.make_dual(T.ones(2, dtype=T.int64), x)
        return [primal.tolist(), tangent.tolist(), grad.tolist(), back.tangent.tolist(), none]

    for ours, theirs in zip(run(tilewright), run(torch), strict=True):
        assert ours == (theirs if theirs is None else pytest.approx(theirs))


def test_gradients_of_a_batch_of_seeds(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        x = T.tensor([1.0, 2.0], requires_grad=True)
        y = x**2
        (rows,) = T.autograd.grad(y, x, T.eye(2), is_grads_batched=True, retain_graph=True)
        edge = T.autograd.graph.get_gradient_edge(x)
        (grad,) = T.autograd.grad(y.sum(), edge)
        return [rows.tolist(), grad.tolist()]

    assert run(tilewright) == run(torch)


def test_tensors_of_modules_are_exchanged(torch: Any) -> None:
    def run(T: Any) -> list[Any]:
        accessor = importlib.import_module(f"{T.__name__}.nn.utils._named_member_accessor")
        swap = accessor.swap_tensor
        layer = T.nn.BatchNorm1d(2)
        layer.plain = T.zeros(1)
        found = [swap(layer, "weight", T.full((2,), 3.0)).tolist(), layer.weight.tolist()]
        found += [swap(layer, "running_mean", T.ones(2)).tolist(), layer.running_mean.tolist()]
        found += [swap(layer, "plain", T.ones(1)).tolist(), layer.plain.tolist()]
        found += [swap(layer, "bias", None).tolist(), layer.bias, sorted(layer.state_dict())]
        found.append(swap(layer, "new", T.ones(1), allow_missing=True) is accessor._MISSING)
        found += [layer.new.tolist(), swap(layer, "weight", accessor._MISSING).tolist()]
        found.append(hasattr(layer, "weight"))
        for name, value in (("none", T.ones(1)), ("a.b", T.ones(1)), ("", T.ones(1)), ("bias", 3)):
            with pytest.raises((AttributeError, KeyError, TypeError)) as error:
                swap(layer, name, value)
            found.append(error.type)
        return found

    assert run(tilewright) == run(torch)


def test_seeds_of_workers(torch: Any) -> None:
    from tilewright.utils.data._utils.worker import _generate_state

    theirs = torch.utils.data._utils.worker._generate_state
    for base, worker in ((0, 0), (5, 1), ((1 << 63) - 7, 3)):
        assert _generate_state(base, worker) == theirs(base, worker)


def test_modules_of_devices() -> None:
    from tilewright._utils import _get_available_device_type, _get_device_module

    assert _get_device_module("cuda") is tilewright.cuda
    assert _get_available_device_type() == ("cuda" if tilewright.cuda.is_available() else None)
    with pytest.raises(RuntimeError, match=r"registered as 'torch\.nothing'"):
        _get_device_module("nothing")
