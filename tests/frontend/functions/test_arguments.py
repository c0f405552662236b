"""Odd but legal forms of arguments, beside PyTorch."""

from __future__ import annotations

import warnings
from types import ModuleType

import pytest
from expressions import assert_alike

import tilewright as tw

SOURCES = """
torch.tensor(deque([1., 2.]))
torch.tensor(deque([[1, 2],[3,4]]))
torch.tensor(range(4))
torch.tensor((1,2.))
torch.tensor({1,2})
torch.tensor({1:2})
torch.tensor({1:2}.values())
torch.tensor(x for x in range(3))
torch.tensor([deque([1,2]), (3,4)])
torch.tensor([range(2), range(2)])
torch.tensor(deque())
torch.tensor(deque([torch.tensor(1.), torch.tensor(2.)]))
torch.tensor(deque([np.float32(1.), 2]))
import array; torch.tensor(array.array("d",[1,2]))
import array; torch.tensor(array.array("i",[1,2]))
torch.tensor(memoryview(b"abc"))
torch.tensor(b"abc")
torch.tensor(bytearray(b"abc"))
torch.tensor("abc")
torch.tensor(["a","b"])
torch.tensor(None)
torch.tensor([None])
torch.tensor([[1],[2,3]])
torch.tensor([1,None])
torch.tensor(map(int,"123"))
torch.tensor(np.array(["a"]))
torch.tensor(np.float32(1))
torch.tensor([np.float32(1), np.float64(2)])
torch.tensor([np.int8(1)])
torch.tensor([torch.tensor(1), 2.5])
torch.tensor([True, 2])
torch.tensor([1, 2.5, True])
torch.tensor([[]])
torch.tensor([[],[]]).shape
torch.tensor([1,2], dtype=torch.bool)
torch.tensor([300], dtype=torch.uint8)
torch.tensor([-1], dtype=torch.uint8)
torch.tensor([1.5], dtype=torch.int64)
torch.tensor(300, dtype=torch.int8)
torch.tensor([2**40], dtype=torch.int32)
torch.tensor([2**70])
torch.tensor(2**63)
torch.tensor([1e300], dtype=torch.float32)
torch.tensor([float("nan")], dtype=torch.int32)
torch.tensor([1], dtype="float32")
torch.tensor([1], dtype=np.float32)
torch.tensor([1], dtype=float)
torch.tensor([1.5], dtype=int)
torch.tensor([1.5], dtype=bool)
torch.ones(2, dtype=float)
torch.as_tensor(deque([1,2]))
torch.as_tensor([1,2], dtype=torch.float)
torch.asarray(deque([1,2]))
torch.as_tensor(3)
import decimal; torch.tensor([decimal.Decimal(1)])
import fractions; torch.tensor([fractions.Fraction(1,2)])
torch.tensor([torch.ones(2), 1])
torch.FloatTensor(deque([1,2]))
torch.ones(2).new_tensor(deque([1,2]))
x=torch.ones(2,3); x.unsqueeze_(dim=0)
x=torch.ones(2,3); x.unsqueeze_(-1).shape
x=torch.ones(2,3); x.transpose_(dim0=0,dim1=1).shape
x=torch.ones(2,3); x.swapaxes_(axis0=0,axis1=1).shape
x=torch.ones(2,3); x.swapdims_(dim0=0,dim1=1).shape
x=torch.ones(2,3); x.t_().shape
x=torch.ones(1,3); x.squeeze_(dim=0).shape
x=torch.ones(1,3,1); x.squeeze_((0,2)).shape
x=torch.ones(1,3,1); x.squeeze_(dim=(0,2)).shape
x=torch.ones(1,3,1); x.squeeze_().shape
x=torch.ones(1,3,1); x.squeeze_(0).shape
x=torch.ones(1,3); x.squeeze_(foo=1)
x=torch.ones(1,3); x.unsqueeze_()
x=torch.ones(1,3); x.t_(1)
x=torch.ones(6); x.resize_(2,3).shape
x=torch.ones(6); x.resize_((2,3)).shape
x=torch.ones(2,3); x.movedim_(0,1)
x=torch.ones(2,3); x.squeeze(dim=0).shape
x=torch.ones(2,3); x.transpose(dim0=0, dim1=1).shape
x=torch.ones(2,3); x.swapaxes(axis0=0, axis1=1).shape
x=torch.ones(2,3); x.swapdims(dim0=0, dim1=1).shape
x=torch.ones(2,3); x.moveaxis(source=0, destination=1).shape
x=torch.ones(2,3); x.permute(dims=(1,0)).shape
x=torch.ones(2,3); x.reshape(shape=(3,2)).shape
x=torch.ones(2,3); x.view(size=(3,2)).shape
x=torch.ones(2,3); x.view(dtype=torch.int32).dtype
x=torch.ones(2,3); x.expand(size=(2,3)).shape
x=torch.ones(2,3); x.repeat(repeats=(2,1)).shape
x=torch.ones(2,3); x.tile(dims=(2,1)).shape
x=torch.ones(2,3); x.flip(dims=(0,)).shape
torch.ones(2,3).flip()
torch.arange(2).flip(())
x=torch.ones(2,3); x.roll(shifts=1,dims=0).shape
x=torch.ones(2,3); x.new_zeros(size=(2,)).shape
torch.zeros(size=(2,3)).shape
torch.ones(size=(2,)).shape
torch.rand(size=(2,)).shape
torch.randn(size=(2,)).shape
torch.empty(size=(2,)).shape
torch.full(size=(2,), fill_value=3.)
torch.broadcast_to(torch.ones(3), size=(2,3)).shape
torch.randint(low=0, high=3, size=(2,)).shape
torch.randint(3, size=(2,)).shape
torch.randperm(n=3).shape
torch.eye(n=2, m=3).shape
torch.arange(start=0,end=3,step=1)
torch.arange(end=3)
torch.linspace(start=0,end=1,steps=3)
torch.reshape(input=torch.ones(2,3), shape=(3,2)).shape
torch.permute(input=torch.ones(2,3), dims=(1,0)).shape
torch.flip(input=torch.ones(2,3), dims=(1,0)).shape
torch.tile(input=torch.ones(2,3), dims=(1,2)).shape
torch.cat(tensors=[torch.ones(2)], dim=0).shape
torch.stack(tensors=[torch.ones(2)], dim=0).shape
torch.cat([torch.ones(2)], axis=0).shape
torch.sum(torch.ones(2,3), axis=0)
torch.ones(2,3).sum(axis=0, keepdims=True)
torch.ones(2,3).mean(axis=(0,1))
torch.linspace(0,1j,3)
torch.linspace(torch.tensor(1j),2,3)
torch.logspace(0,1j,2)
torch.linspace(0,1j,3,dtype=torch.float32)
torch.sum(torch.tensor([1.5,2.5]),0,out=torch.empty(0,dtype=torch.int64))
torch.prod(torch.tensor([1.5,2.5]),0,out=torch.empty(0,dtype=torch.int64))
torch.sum(torch.tensor([1.5,2.5]),0,out=torch.empty(0,dtype=torch.float64)).dtype
torch.cat([torch.ones(2)],out=torch.empty(0,dtype=torch.int64))
torch.stack([torch.ones(2)],out=torch.empty(0,dtype=torch.int64))
torch.where(torch.tensor([True]),torch.ones(1),torch.ones(1),out=torch.empty(0,dtype=torch.float64))
torch.clamp(torch.ones(2),0,1,out=torch.empty(0,dtype=torch.float64))
torch.norm(torch.ones(2),out=torch.empty(0,dtype=torch.float64))
torch.argmax(torch.ones(2,2),0,out=torch.empty(0))
torch.argmin(torch.ones(2,2),0,out=torch.empty(0,dtype=torch.int64))
torch.isin(torch.ones(2),torch.ones(1),out=torch.empty(0))
torch.histc(torch.ones(2),4,out=torch.empty(0,dtype=torch.float64))
torch.aminmax(torch.zeros(0,4))
torch.aminmax(torch.zeros(0,4),dim=0)
torch.aminmax(torch.zeros(0,4),dim=1).max.shape
torch.fft.fft2(torch.ones(2,2),dim=None)
torch.empty(3,dtype=torch.uint8).random_(0,300)
torch.empty(3,dtype=torch.int8).random_(-200,3)
torch.empty(3,dtype=torch.uint8).random_(0,256).shape
torch.special.zeta(torch.tensor([3.5,2.,.5]),torch.tensor([-2.,-1.,-1.]))
""".strip().splitlines()


@pytest.mark.parametrize("source", SOURCES)
def test_as_in_pytorch(torch: ModuleType, source: str) -> None:
    assert_alike(torch, tw, source)


@pytest.mark.parametrize("name", ["dropout1d", "dropout2d", "dropout3d"])
@pytest.mark.parametrize("rank", range(1, 7))
def test_ranks_of_feature_dropout(torch: ModuleType, name: str, rank: int) -> None:
    """Which dimensions share a mask, whether there is a warning, and what is refused."""
    shape = (30, 20, 2, 3, 2, 2)[:rank]
    found = []
    for module in (torch, tw):
        module.manual_seed(0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                kept = getattr(module.nn.functional, name)(module.ones(*shape)) != 0
            except RuntimeError:
                found.append((None, len(caught)))
                continue
        shared = [bool((kept == kept.narrow(d, 0, 1)).all()) for d in range(rank)]
        found.append((shared, len(caught)))
    assert found[0] == found[1]


def test_a_sampler_with_replacement_is_lazy() -> None:
    sampler = tw.utils.data.RandomSampler(range(7), replacement=True, num_samples=int(1e10))
    assert len(sampler) == int(1e10)
    draws = iter(sampler)
    first = [next(draws) for _ in range(1000)]
    assert set(first) == set(range(7))
    tw.manual_seed(3)
    small = tw.utils.data.RandomSampler(range(7), replacement=True, num_samples=100)
    drawn = list(small)
    assert len(drawn) == 100
    tw.manual_seed(3)
    again = iter(small)
    # What else is drawn meanwhile changes nothing.
    assert [(next(again), tw.rand(1))[0] for _ in range(100)] == drawn
    own = tw.Generator().manual_seed(1)
    sampler = tw.utils.data.RandomSampler(range(7), True, 50, generator=own)
    assert list(sampler) != list(sampler)
