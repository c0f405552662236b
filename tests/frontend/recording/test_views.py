"""Every kind of view: reads, writes through it, its base and siblings, gradients, NumPy."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest
from oracle import agree
from view_programs import Program

import tilewright as tw
from tilewright import recording
from tilewright.recording import epoch, views

SHAPE = (4, 4, 6)

VIEWS: dict[str, Any] = {
    "as_strided": lambda m, x: x.as_strided((2, 3), (13, 5), 7),
    "as_strided windows": lambda m, x: x.as_strided((3, 4), (24, 6), 1),
    "broadcast_to": lambda m, x: m.broadcast_to(x, (1, *x.shape))[0],
    "chunk": lambda m, x: x.chunk(2, -1)[1],
    "data": lambda m, x: x.data,
    "detach": lambda m, x: x.detach(),
    "diagonal": lambda m, x: x.diagonal(),
    "diagonal above": lambda m, x: m.diagonal(x, 2, 1, 2),
    "diagonal below": lambda m, x: x.diagonal(-1, -1, 0),
    "diagonal of a diagonal": lambda m, x: x.diagonal(0, 0, 1).diagonal(),
    "diagonal of a part": lambda m, x: x[1:, 0].t().diagonal(1),
    "diagonal, viewed": lambda m, x: x[0].diagonal().view(2, 2),
    "dots": lambda m, x: x[..., 1:2],
    "dsplit": lambda m, x: x.dsplit(3)[1],
    "ellipsis": lambda m, x: x[...],
    "expand": lambda m, x: x.expand(4, 4, 6),
    "expand, a row": lambda m, x: x.expand(3, 4, 4, 6)[1],
    "expand_as": lambda m, x: x[:1].expand_as(m.zeros(1, 4, 6)),
    "flatten": lambda m, x: x.flatten(1),
    "hsplit": lambda m, x: x.hsplit(2)[0],
    "index": lambda m, x: x[1:, 2, ::2],
    "int": lambda m, x: x[-1],
    "linalg.diagonal": lambda m, x: m.linalg.diagonal(x, offset=1),
    "mH": lambda m, x: x.mH,
    "mT": lambda m, x: x.mT,
    "movedim": lambda m, x: x.movedim((0, 1), (2, 0)),
    "narrow": lambda m, x: x.narrow(1, 1, 2),
    "None": lambda m, x: x[None, :, None],
    "permute": lambda m, x: x.permute(2, 0, 1),
    "positive": lambda m, x: x.positive(),
    "ravel": lambda m, x: x.ravel(),
    "reshape": lambda m, x: x.reshape(2, 2, 24),
    "select": lambda m, x: x.select(1, 2),
    "slice": lambda m, x: x[:, 1::2],
    "split": lambda m, x: x.split([1, 5], 2)[1],
    "split_with_sizes": lambda m, x: x.split_with_sizes([3, 1])[0],
    "squeeze": lambda m, x: x[:, :1].squeeze(1),
    "swapaxes": lambda m, x: x.swapaxes(0, 2),
    "swapdims": lambda m, x: x.swapdims(1, 2),
    "t": lambda m, x: x[1].t(),
    "T": lambda m, x: x[1].T,
    "H": lambda m, x: x[1].H,
    "tensor_split": lambda m, x: x.tensor_split(3, 2)[2],
    "transpose": lambda m, x: x.transpose(0, 1),
    "unbind": lambda m, x: x.unbind(1)[3],
    "unflatten": lambda m, x: x.unflatten(2, (2, 3)),
    "unfold beside": lambda m, x: x.unfold(2, 2, 2),
    "unfold apart": lambda m, x: x.unfold(2, 2, 3),
    "unfold, a place": lambda m, x: x.unfold(1, 2, 1)[..., 1],
    "unsqueeze": lambda m, x: x.unsqueeze(1),
    "view": lambda m, x: x.view(-1),
    "view_as": lambda m, x: x.view_as(m.zeros(16, 6)),
    "vsplit": lambda m, x: x.vsplit(2)[1],
}
WRITES: dict[str, Any] = {
    "add_": lambda m, v: v.add_(10),
    "mul_": lambda m, v: v.mul_(m.arange(v.numel(), dtype=v.dtype).reshape(v.shape)),
    "copy_": lambda m, v: v.copy_(-m.arange(v.numel(), dtype=v.dtype).reshape(v.shape)),
    "zero_": lambda m, v: v.zero_(),
    "item": lambda m, v: v.__setitem__((0, ...), 77.0),
    "mask": lambda m, v: v.__setitem__(v > 20, -1.0),
    "positions": lambda m, v: v.__setitem__(m.tensor([0]), 3.0),
}
SEVERAL = ("chunk", "split", "split_with_sizes", "unbind")


def base(m: Any) -> Any:
    return m.arange(96, dtype=m.float64).reshape(SHAPE)


@pytest.mark.parametrize("name", VIEWS)
def test_reads_and_writes(torch: Any, name: str) -> None:
    for write in WRITES.values():
        found = []
        for m in (tw, torch):
            x = base(m)
            sibling, v = x[1:3, ::2], VIEWS[name](m, x)
            before = v.clone()
            write(m, v)
            again = VIEWS[name](m, x)
            versions = [float(t._version) for t in (x, v, sibling)]
            if name == "data":  # PyTorch doesn't count them
                versions = []
            found.append((v, before, x, sibling, again, m.tensor(versions)))
        agree(found[0][0], found[1][0], layout=True)
        agree(found[0], found[1])


@pytest.mark.parametrize("name", VIEWS)
def test_gradients(torch: Any, name: str) -> None:
    """Through reads, and through a write of a value with a gradient."""
    found = []
    for m in (tw, torch):
        w, s = base(m).requires_grad_(), m.full((), 2.0, dtype=m.float64, requires_grad=True)
        k = m.arange(96, dtype=m.float64).reshape(SHAPE) % 7
        read = VIEWS[name](m, w)
        (read * read).sum().backward() if read.requires_grad else None
        out = [read, *(() if w.grad is None else (w.grad.clone(),))]
        if name not in SEVERAL:
            x = w * 2
            v = VIEWS[name](m, x)
            later = VIEWS[name](m, x) if v.requires_grad else x
            v.mul_(s)
            ((x * k).sum() + (later * 3).sum() + v.sum()).backward()
            out += [x, v, later, w.grad, s.grad]
        found.append(out)
    agree(*found)


@pytest.mark.parametrize("name", VIEWS)
def test_numpy_shares_memory(torch: Any, name: str) -> None:
    found = []
    for m in (tw, torch):
        x = base(m)
        array = VIEWS[name](m, x).numpy()
        array[(0,) * array.ndim] = -5
        x.mul_(2)
        found.append((x, m.tensor(array.copy()), m.tensor(array.strides)))
        assert np.shares_memory(array, x.numpy())
    agree(*found)


def test_a_diagonal_of_what_numpy_lent() -> None:
    array = np.arange(16.0).reshape(4, 4)
    x = tw.from_numpy(array)
    x.diagonal(1).add_(100)
    assert array[0, 1] == 101 and array[2, 3] == 111 and array[0, 0] == 0
    array[1, 2] = 7
    assert x.diagonal(1).tolist() == [101, 7, 111]
    columns = tw.from_numpy(array[:, ::2])
    columns.diagonal().zero_()
    assert array[0, 0] == 0 and array[1, 2] == 0
    array[:] = np.arange(16.0).reshape(4, 4)
    assert columns.as_strided((2, 2), (3, 2), 1).tolist() == [[1, 3], [4, 6]]
    columns.as_strided((2,), (3,)).fill_(-1)
    assert array[0, 0] == -1 and array[0, 3] == -1 and array.sum() == 120 - 5


def test_views_of_what_numpy_lent_are_copied_as_they_lie() -> None:
    """To copy the elements of a transposed matrix in its order takes ten times as long."""
    array = np.arange(24.0).reshape(4, 6)
    x = tw.from_numpy(array)
    cases = {
        (6, 4): x.t(),
        (4, 6): x[:, :5],
        (4, 3): x[:, ::2],
        (2, 3, 4): x.view(4, 2, 3).permute(1, 2, 0),
    }
    wanted = {shape: view.numpy() + 1 for shape, view in cases.items()}
    made = {shape: view + 1 for shape, view in cases.items()}
    sizes = sorted(math.prod(node.shape) for _, node, _ in epoch.leaves)
    assert sizes == [12, 24, 24, 24]
    array[:] = -1
    for shape, t in made.items():
        np.testing.assert_array_equal(t.numpy(), wanted[shape])


def test_overlaps(torch: Any) -> None:
    """A view that has an element twice can be filled. Other writes to it are refused."""
    for m in (tw, torch):
        x = m.arange(6.0)
        with pytest.raises(RuntimeError, match="more than one element"):
            x.expand(3, 6).mul_(2)
        with pytest.raises(RuntimeError, match="more than one element"):
            x.expand(3, 6)[:, 1] += 1
        x.expand(3, 6)[1].copy_(m.ones(6))
        assert x.tolist() == [1] * 6
        x.expand(3, 6).fill_(4)
        x.unfold(0, 3, 1)[:, 1].zero_()
        assert x.tolist() == [4, 0, 0, 0, 0, 4]
        x.unfold(0, 2, 1).fill_(2)
        assert x.tolist() == [2] * 6 and x.unfold(0, 3, 1).sum().item() == 24
        x.as_strided((2, 2, 2), (2, 1, 2)).fill_(1)
        assert x.tolist() == [1, 1, 1, 1, 1, 1]
    with pytest.raises(RuntimeError, match="more than one element"):  # PyTorch's order is its own
        tw.arange(6.0).unfold(0, 2, 1).mul_(2)


def test_many_writes_through_nested_parts() -> None:
    """Tiles of a picture: what is recorded grows with their number, and no faster."""
    from tilewright.ir.node import reachable

    counts = []
    for n in (4, 8):
        grid = tw.zeros(1, 2 * n, 2 * n)
        for k in range(n * n):
            row = grid.narrow(1, 2 * (k // n), 2)
            row.narrow(2, 2 * (k % n), 2).copy_(tw.full((1, 2, 2), float(k)))
        counts.append(len(reachable([recording.resolve(grid)])))
        assert grid[0, ::2, ::2].reshape(-1).tolist() == list(range(n * n))
    assert counts[1] < 5 * counts[0]


# ---- which views may be written to, and when ---------------------------------------------------

STALE = {
    "unbind": lambda x: x.unbind(0)[0],
    "chunk": lambda x: x.chunk(2)[0],
    "split": lambda x: x.split(2)[0],
    "split_with_sizes": lambda x: x.split_with_sizes([2, 2])[0],
    "iteration": lambda x: next(iter(x)),
    "view of one": lambda x: x.chunk(2)[0].view(-1),
    "tensor_split": lambda x: x.tensor_split(2)[0],
    "hsplit": lambda x: x.hsplit(2)[0],
    "select": lambda x: x[0],
    "unsafe_chunk": lambda x: x.unsafe_chunk(2)[0],
}


def stale_program(m: Any, make: Any, step: str) -> Any:
    w = m.ones(4, requires_grad=True)
    x = m.ones(4) if "plain" in step else w * 1
    a = make(x)
    if step in ("base", "detach", "values", "no_grad use", "fresh"):
        x.mul_(2)
    elif step == "sibling":
        x[3:].mul_(2)
    elif step == "plain base":
        x.mul_(w)
    elif step == "base without grad":
        with m.no_grad():
            x.mul_(2)
    elif step == "data":
        x.data.mul_(2)
    elif step == "own" or step == "plain own":
        a.mul_(2)
    elif step == "own without grad":
        with m.no_grad():
            a.mul_(2)
    if step == "detach":
        return a.detach() * 1
    if step == "values":
        return a.tolist()
    if step == "fresh":
        return make(x) * 1
    if step == "no_grad use":
        with m.no_grad():
            return a * 1
    return a * 1


STEPS = (
    "base", "sibling", "plain base", "base without grad", "data", "own", "plain own",
    "own without grad", "detach", "values", "no_grad use", "fresh",
)  # fmt: skip


@pytest.mark.parametrize("name", STALE)
def test_views_that_are_one_of_several(torch: Any, name: str) -> None:
    for step in STEPS:
        if name == "unsafe_chunk" and step != "base":
            continue  # no views of PyTorch's
        try:
            expected = stale_program(torch, STALE[name], step)
        except RuntimeError as error:
            assert "multiple views" in str(error)
            with pytest.raises(RuntimeError, match="multiple views"):
                stale_program(tw, STALE[name], step)
            continue
        found = stale_program(tw, STALE[name], step)
        if isinstance(found, tw.Tensor):
            assert found.requires_grad == expected.requires_grad, step
            found, expected = found.tolist(), expected.tolist()
        assert found == expected, step


def test_detached_tensors_and_their_views(torch: Any) -> None:
    """A detached tensor is the base of its views: they share what is written with a gradient."""
    found = []
    for m in (tw, torch):
        w = m.ones(4, requires_grad=True)
        x = w * 3
        y = x.detach()
        flat, part = y.view(2, 2), y[1:]
        flat[0].mul_(w[:2] * 2)
        other = x.detach()
        assert (y.requires_grad, part.requires_grad, other.requires_grad) == (True, True, False)
        (y * m.arange(4.0)).sum().backward()
        found.append((x, y, flat, part, other, w.grad))
    agree(*found)


def test_views_of_a_leaf_that_shares_its_memory(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        data = m.ones(3)
        p = m.nn.Parameter(data)
        held = p.view(-1)
        (p * 2).sum().item()  # the epoch ends
        (held * m.arange(3.0)).sum().backward()
        with m.no_grad():
            held.mul_(3)
        with pytest.raises(RuntimeError, match="leaf"):
            held.mul_(2)
        (held * held).sum().backward()
        found.append((data, held, p.grad))
    agree(*found)


def test_views_of_a_leaf_stay_with_its_earlier_memory(torch: Any) -> None:
    found = []
    for m in (tw, torch):
        p = m.nn.Parameter(m.zeros(3))
        p.data = m.arange(3.0)
        part = p[1:]
        shown = part.detach()
        p.data = m.full((3,), 7.0)
        loss = (part * shown).sum()
        loss.backward()
        found.append((part, shown, loss, p, p.grad))
    agree(*found)


# ---- what is the tensor itself, an alias or a copy ---------------------------------------------

SAME: dict[str, Any] = {
    "flatten": lambda m, x: x.flatten(),
    "flatten one": lambda m, x: x.flatten(0, 0),
    "ravel": lambda m, x: x.ravel(),
    "contiguous": lambda m, x: x.contiguous(),
    "to": lambda m, x: x.to(x.dtype),
    "to cpu": lambda m, x: x.to("cpu"),
    "cpu": lambda m, x: x.cpu(),
    "float": lambda m, x: x.float(),
    "type_as": lambda m, x: x.type_as(x),
    "reshape": lambda m, x: x.reshape(x.shape),
    "view": lambda m, x: x.view(x.shape),
    "expand": lambda m, x: x.expand(x.shape),
    "permute": lambda m, x: x.permute(tuple(range(x.dim()))),
    "squeeze": lambda m, x: x.squeeze(),
    "transpose": lambda m, x: x.transpose(0, 0),
    "movedim": lambda m, x: x.movedim(0, -1) if x.dim() < 2 else x.movedim(0, 0),
    "dots": lambda m, x: x[...],
    "all": lambda m, x: x[:] if x.dim() else x[...],
    "detach": lambda m, x: x.detach(),
    "data": lambda m, x: x.data,
    "positive": lambda m, x: x.positive(),
    "+": lambda m, x: +x,
    "real": lambda m, x: x.real,
    "atleast_1d": lambda m, x: m.atleast_1d(x),
    "broadcast_tensors": lambda m, x: m.broadcast_tensors(x, x)[0],
    "as_tensor": lambda m, x: m.as_tensor(x),
    "clone": lambda m, x: x.clone(),
    "diag": lambda m, x: x.diag() if x.dim() else x.clone(),
    "dropout": lambda m, x: m.nn.functional.dropout(x, 0.5, False),
    "nan_to_num": lambda m, x: x.nan_to_num(),
    "mT": lambda m, x: x.mT if x.dim() == 2 else x,
}


@pytest.mark.filterwarnings("ignore:Tensor.mT is deprecated:UserWarning")
@pytest.mark.parametrize("name", SAME)
def test_self_alias_or_copy(torch: Any, name: str) -> None:
    def kinds(m: Any) -> list[Any]:
        out = []
        for shape in ((), (1,), (6,), (2, 3)):
            for x in (m.ones(shape), m.ones((2, *shape))[1]):
                y = SAME[name](m, x)
                kind = "self"
                if y is not x:
                    x.fill_(5)
                    kind = "alias" if y.reshape(-1)[0].item() == 5 else "copy"
                out.append((shape, kind, tuple(y.shape), tuple(y.stride()), y.storage_offset()))
        return out

    assert kinds(tw) == kinds(torch)


# ---- arguments ---------------------------------------------------------------------------------

CALLS: dict[str, Any] = {
    "slice step": lambda m: m.ones(4)[::0],
    "unfold step": lambda m: m.ones(4).unfold(0, 2, 0),
    "unfold size": lambda m: m.ones(4).unfold(0, -1, 1),
    "unfold of nothing": lambda m: m.ones(4).unfold(0, 0, 1),
    "unfold of a number": lambda m: m.tensor(2.0).unfold(0, 1, 1),
    "unfold larger": lambda m: m.ones(4).unfold(0, 5, 1),
    "conv stride": lambda m: m.nn.functional.conv1d(m.ones(1, 1, 4), m.ones(1, 1, 2), stride=0),
    "conv dilation": lambda m: m.nn.functional.conv1d(m.ones(1, 1, 4), m.ones(1, 1, 2), dilation=0),
    "conv_transpose stride": lambda m: m.nn.functional.conv_transpose2d(
        m.ones(1, 1, 4, 4), m.ones(1, 1, 2, 2), stride=0
    ),
    "max_pool1d stride": lambda m: m.nn.functional.max_pool1d(m.ones(1, 1, 4), 2, stride=0),
    "max_pool2d stride": lambda m: m.nn.functional.max_pool2d(m.ones(1, 1, 4, 4), 2, stride=0),
    "max_pool2d dilation": lambda m: m.nn.functional.max_pool2d(m.ones(1, 1, 4, 4), 2, dilation=0),
    "avg_pool1d stride": lambda m: m.nn.functional.avg_pool1d(m.ones(1, 1, 4), 2, stride=0),
    "avg_pool2d stride": lambda m: m.nn.functional.avg_pool2d(m.ones(1, 1, 4, 4), 2, stride=0),
    "F.unfold stride": lambda m: m.nn.functional.unfold(m.ones(1, 1, 4, 4), 2, stride=0),
    "F.fold stride": lambda m: m.nn.functional.fold(m.ones(1, 4, 9), (4, 4), 2, stride=0),
    "split of nothing": lambda m: m.ones(4).split(0),
    "split with wrong sizes": lambda m: m.ones(4).split([1, 2]),
    "split_with_sizes": lambda m: m.ones(4).split_with_sizes([5, -1]),
    "chunk of nothing": lambda m: m.ones(4).chunk(0),
    "tensor_split of nothing": lambda m: m.ones(4).tensor_split(0),
    "unbind of a number": lambda m: m.tensor(1.0).unbind(),
    "chunk of a number": lambda m: m.tensor(1.0).chunk(1),
    "split of a number": lambda m: m.tensor(1.0).split(1),
    "tensor_split of a number": lambda m: m.tensor(1.0).tensor_split(1),
    "chunk dim": lambda m: m.ones(2).chunk(2, 3),
    "movedim of a number": lambda m: m.tensor(2.0).movedim(0, -1),
    "movedim twice": lambda m: m.ones(2, 3).movedim((0, 0), (0, 1)),
    "movedim lengths": lambda m: m.ones(2, 3).movedim((0, 1), (0,)),
    "movedim range": lambda m: m.ones(2, 3).movedim(3, 0),
    "narrow length": lambda m: m.ones(4).narrow(0, 1, -1),
    "narrow of a number": lambda m: m.tensor(1.0).narrow(0, 0, 1),
    "narrow start": lambda m: m.ones(4).narrow(0, 5, 0),
    "narrow at a tensor": lambda m: m.arange(4).narrow(0, m.tensor(1), 2),
    "diagonal of one dimension": lambda m: m.ones(2, 3).diagonal(0, 1, 1),
    "diagonal outside": lambda m: m.ones(2, 3).diagonal(5),
    "diagonal of a vector": lambda m: m.ones(3).diagonal(),
    "mT of a vector": lambda m: m.ones(3).mT,
    "H of three": lambda m: m.ones(3, 2, 1).H,
    "fill_diagonal_": lambda m: m.zeros(7, 3).fill_diagonal_(1),
    "fill_diagonal_ wrapped": lambda m: m.zeros(7, 3).fill_diagonal_(1, wrap=True),
    "fill_diagonal_ of a cube": lambda m: m.zeros(3, 3, 3).fill_diagonal_(2),
    "fill_diagonal_ of a box": lambda m: m.zeros(3, 2, 3).fill_diagonal_(1),
    "fill_diagonal_ of a vector": lambda m: m.zeros(3).fill_diagonal_(1),
    "diag_embed": lambda m: m.diag_embed(m.arange(6.0).view(2, 3), 1, 0, 2),
    "diag_embed one dim": lambda m: m.diag_embed(m.ones(3), 0, 1, 1),
    "diag of a number": lambda m: m.tensor(1.0).diag(),
    "diagflat": lambda m: m.diagflat(m.ones(2), -1),
    "diagonal_scatter": lambda m: m.diagonal_scatter(m.zeros(2, 3), m.ones(2), 1),
    "diagonal_scatter shape": lambda m: m.diagonal_scatter(m.zeros(2, 3), m.ones(3), 1),
    "as_strided negative": lambda m: m.ones(4).as_strided((2,), (-1,), 3),
    "as_strided outside": lambda m: m.ones(4).as_strided((3,), (2,)),
    "as_strided lengths": lambda m: m.ones(4).as_strided((3,), (2, 1)),
    "as_strided offset": lambda m: m.ones(4).as_strided((3,), (1,), -1),
    "as_strided of a part": lambda m: m.arange(6.0)[2:].as_strided((2,), (1,)),
    "positive of bools": lambda m: +m.tensor([True]),
    "take_along_dim": lambda m: m.arange(6.0).view(2, 3).take_along_dim(m.tensor([[0], [1]]), 1),
    "take_along_dim broadcasts": lambda m: (
        m.arange(6.0).view(2, 3).take_along_dim(m.tensor([[2]]), 1)
    ),
    "take_along_dim of a broadcast": lambda m: (
        m.arange(6.0).view(1, 2, 3).take_along_dim(m.ones(4, 2, 1, dtype=m.int64), 2)
    ),
    "take_along_dim flat": lambda m: (
        m.arange(6.0).view(2, 3).take_along_dim(m.tensor([[0, 4], [1, 1]]))
    ),
    "take_along_dim ranks": lambda m: m.ones(2, 3).take_along_dim(m.tensor([0]), 1),
    "take_along_dim sizes": lambda m: m.ones(2, 3).take_along_dim(m.zeros(3, 1, dtype=m.int64), 1),
    "take_along_dim dtype": lambda m: m.ones(2, 3).take_along_dim(m.zeros(2, 1, dtype=m.int32), 1),
}


@pytest.mark.parametrize("name", CALLS)
def test_call(torch: Any, name: str) -> None:
    try:
        expected = CALLS[name](torch)
    except Exception as error:
        with pytest.raises(type(error)):
            CALLS[name](tw)
        return
    agree(CALLS[name](tw), expected, layout=True)


def test_strides_of_expansions(torch: Any) -> None:
    cases = [
        lambda m: m.arange(6).expand(1, -1),
        lambda m: m.arange(6).expand(1, 1, -1),
        lambda m: m.ones(1, 1, 3).expand(2, 1, 3),
        lambda m: m.ones(1).expand(1, 1),
        lambda m: m.tensor(1.0).expand(1, 1),
        lambda m: m.ones(2, 1).t().expand(1, 1, 1, 2),
        lambda m: m.ones(0, 3).expand(2, 0, 3),
        lambda m: m.ones(3).expand(0, 3),
    ]
    for case in cases:
        assert case(tw).stride() == case(torch).stride()
    for m in (tw, torch):

        class Net(m.nn.Module):  # type: ignore[name-defined,misc]
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("position_ids", m.arange(5).expand((1, -1)))  # noqa: B023

        net = Net()
        net.load_state_dict({"position_ids": m.arange(5, 10).reshape(1, 5)})
        assert net.position_ids.tolist() == [[5, 6, 7, 8, 9]]


def test_copies_of_parameters_have_no_gradient(torch: Any) -> None:
    for m in (tw, torch):
        net = m.nn.Linear(2, 1)
        net(m.ones(1, 2)).sum().backward()
        leaf = m.ones(2, requires_grad=True)
        leaf.sum().backward()
        assert copy.deepcopy(net).weight.grad is None and net.weight.grad is not None
        assert copy.deepcopy(leaf).grad.tolist() == [1, 1]


# ---- random programs ---------------------------------------------------------------------------


@pytest.mark.parametrize("part", range(4))
def test_random_programs(torch: Any, part: int) -> None:
    for seed in range(part * 12, part * 12 + 12):
        Program(seed, tw, torch).run()


def test_random_programs_one_op_at_a_time(torch: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(recording.clock, "limit", 0)
    monkeypatch.setattr(recording.clock, "usual_limit", 0)
    for seed in range(1000, 1016):
        Program(seed, tw, torch).run()


@pytest.mark.parametrize("flushed", [False, True])
def test_a_view_keeps_the_leaf_that_it_is_a_view_of(flushed: bool) -> None:
    """Also where that leaf shares the memory of another tensor and the program forgets it."""
    base = tw.ones(2, 3).requires_grad_()
    leaf = base.detach().requires_grad_()
    view, again = leaf.t(), leaf.t().t()
    seen = []
    leaf.register_hook(lambda g: seen.append(g.tolist()))
    del leaf
    if flushed:
        recording.flush()
    assert again.requires_grad and not again.is_leaf and view.requires_grad
    (again * 2 + view.t()).sum().backward()
    assert base.grad is None and seen == [[[3, 3, 3]] * 2]


@pytest.mark.parametrize("flushed", [False, True])
def test_detach_after_a_write_through_a_view(flushed: bool) -> None:
    x = tw.ones(3, 4).requires_grad_()
    y = x * 2
    y.t()[0].sub_(0.5)
    if flushed:
        recording.flush()
    y.detach_()
    assert not y.requires_grad and y.is_leaf and not (y * 2).requires_grad
    assert not y.view(4, 3).requires_grad and y.tolist() == [[1.5, 2, 2, 2]] * 3


@pytest.mark.parametrize("flushed", [False, True])
def test_views_keep_their_history_when_their_base_is_detached(flushed: bool) -> None:
    x = tw.ones(4, 3).requires_grad_()
    y = x * 2
    view = y.view(12)
    if flushed:
        recording.flush()
    y.detach_()
    assert not y.requires_grad and y.is_leaf and view.requires_grad and not view.is_leaf
    assert view.view(3, 4).requires_grad and not y.t().requires_grad
    (view * 3).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [[6.0] * 3] * 4
    y.add_(1)
    assert view.tolist() == [3.0] * 12


def test_parts_changed_in_place_are_written_once(torch: Any) -> None:
    """Python writes back what `x[i] += 1` has written: to the same part, without another write."""

    def seen(m: Any) -> list[Any]:
        x = m.zeros(3, 4)
        x[1] += 2
        x[1:, 2] *= 3
        x[..., 1] -= 1
        x[0] = x[0]
        x[0] = x[1]
        found = [x.tolist(), x._version]
        turned = m.ones(2, 2).t()
        turned[0] += 1
        detached = turned.detach()
        detached[1] += 1
        found += [turned.tolist(), turned._version, detached._version]
        array = np.zeros(4)
        shared = m.from_numpy(array)
        shared[1] += 1
        shared[2:] -= 1
        found += [array.tolist(), shared._version]
        leaf = m.ones(3, requires_grad=True)
        y = leaf * 1
        y[0] += 5
        (y * m.arange(3.0)).sum().backward()
        with m.no_grad():
            leaf[0] += 1
        leaf.data[1] += 3
        found += [y.tolist(), leaf.grad.tolist(), leaf.tolist(), leaf._version]
        with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
            leaf[0] = leaf[0]
        return [*found, repr(y)]

    assert seen(tw) == seen(torch)


def test_a_part_changed_in_place_is_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilewright.recording import writes

    count = 0
    write = writes._write_storage

    def counted(*args: Any) -> None:
        nonlocal count
        count += 1
        write(*args)

    monkeypatch.setattr(writes, "_write_storage", counted)
    x = tw.zeros(4, 4)
    for i in range(8):
        x[i % 4] += x[(i + 1) % 4] * 0.5 + 1
    assert count == 8 and x.sum().item() > 0


@pytest.mark.parametrize("write", [False, True])
@pytest.mark.parametrize("tracked", [False, True])
def test_a_chain_of_views_to_and_fro_stays_short(tracked: bool, write: bool) -> None:
    """A loop that turns a tensor at each step costs the same at each."""
    base = tw.arange(6.0).reshape(2, 3).requires_grad_(tracked)
    x = base * 1
    whole, expected, factor = x, np.arange(6.0).reshape(2, 3), 1.0
    for i in range(301):
        x = (x.t(), x.unsqueeze(0).squeeze(0).t(), x.view(x.shape).transpose(0, 1))[i % 3]
        if write and i % 100 == 99:
            x.mul_(2)
            factor *= 2
    assert len(x._chain.links) <= views._LONG + 4
    np.testing.assert_array_equal(x.tolist(), expected.T * factor)
    np.testing.assert_array_equal(whole.tolist(), expected * factor)
    assert x._base is whole and x.stride() == (1, 3)
    if tracked:
        (x * tw.arange(6.0).reshape(3, 2)).sum().backward()
        np.testing.assert_array_equal(base.grad, np.arange(6.0).reshape(3, 2).T * factor)


def test_detached_views_to_and_fro_stay_detached() -> None:
    leaf = tw.ones(3, requires_grad=True)
    x = leaf * 2
    for i in range(100):
        x = x.detach() if i % 2 else x.view(3)
    assert not x.requires_grad and len(x._chain.links) <= views._LONG + 4
    y = (leaf * 2).detach()
    for _ in range(100):
        y = y.data.view(3)
    y.add_(1)
    assert y.tolist() == [3, 3, 3]
