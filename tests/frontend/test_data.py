"""Datasets, samplers, collation and the loader."""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest

import tilewright as tw
from tilewright.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    random_split,
)


class Squares(Dataset):
    def __len__(self):
        return 7

    def __getitem__(self, i):
        return tw.tensor([float(i)]) * 2, i * i


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(5))


def pairs(n=10):
    return TensorDataset(tw.arange(n).float().reshape(n, 1), tw.arange(n))


def test_tensor_dataset():
    data = pairs()
    x, y = data[3]
    assert len(data) == 10 and x.tolist() == [3] and y.item() == 3 and data[-1][1].item() == 9
    assert data[2:4][1].tolist() == [2, 3]
    with pytest.raises(IndexError, match="out of bounds"):
        data[10]
    with pytest.raises(AssertionError, match="Size mismatch"):
        TensorDataset(tw.ones(2), tw.ones(3))


def test_loader_of_tensors():
    data = pairs()
    batches = list(DataLoader(data, batch_size=4))
    assert [b[1].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert isinstance(batches[0], list) and batches[0][0].shape == (4, 1)
    assert len(DataLoader(data, 4)) == 3 and len(DataLoader(data, 4, drop_last=True)) == 2
    assert [len(b[1]) for b in DataLoader(data, 4, drop_last=True)] == [4, 4]
    data.tensors[0].mul_(10)  # seen by what is loaded from now on
    assert next(iter(DataLoader(data, 2)))[0].tolist() == [[0], [10]]
    assert batches[0][0].tolist() == [[0], [1], [2], [3]]


def test_shuffling_is_seeded():
    data = pairs(20)

    def order(**options):
        return [i for b in DataLoader(data, 6, shuffle=True, **options) for i in b[1].tolist()]

    tw.manual_seed(5)
    first, second = order(), order()
    tw.manual_seed(5)
    assert order() == first != second and sorted(first) == list(range(20))
    generator = tw.Generator().manual_seed(3)
    one = order(generator=generator)
    assert one == order(generator=tw.Generator().manual_seed(3)) != order(generator=generator)


def test_loader_of_other_datasets():
    batches = list(DataLoader(Squares(), batch_size=3))
    assert batches[1][0].tolist() == [[6], [8], [10]] and batches[1][1].tolist() == [9, 16, 25]
    assert [b.tolist() for b in DataLoader(Stream(), batch_size=2)] == [[0, 1], [2, 3], [4]]
    assert list(DataLoader(Stream(), batch_size=None)) == [0, 1, 2, 3, 4]
    assert (
        next(iter(DataLoader(ChainDataset([Stream(), Stream()]), 10))).tolist() == [*range(5)] * 2
    )
    both = pairs(3) + pairs(2)
    assert isinstance(both, ConcatDataset) and len(both) == 5
    assert [b[1].tolist() for b in DataLoader(both, 2)] == [[0, 1], [2, 0], [1]]
    assert both[-1][1].item() == 1
    stacked = StackDataset(pairs(7), Squares())
    assert stacked[2][1][1] == 4
    single = [x.tolist() for x, _ in DataLoader(Subset(pairs(), [4, 2]), batch_size=None)]
    assert single == [[4], [2]]
    assert [b[1].tolist() for b in DataLoader(Subset(pairs(), [4, 2, 9]), 2)] == [[4, 2], [9]]
    doubled = DataLoader(pairs(), 2, collate_fn=lambda samples: len(samples))
    assert list(doubled) == [2] * 5
    loaded = [b[1].tolist() for b in DataLoader(pairs(), batch_sampler=[[1, 2], [0]])]
    assert loaded == [[1, 2], [0]]
    assert [b.tolist() for b in DataLoader(np.arange(5), 2)] == [[0, 1], [2, 3], [4]]
    assert [b.tolist() for b in DataLoader([1.5, 2.5], 2)] == [[1.5, 2.5]]


def test_batches_don_t_make_new_graphs():
    """A batch is a leaf: training on new samples repeats the plan of the first step."""
    from tilewright.ir import node as graph

    data = Squares()
    loader = DataLoader(data, 1, shuffle=True)
    for x, _ in loader:
        (x * 3).sum().item()
    before = graph.table_size()
    for x, _ in loader:
        (x * 3).sum().item()
    assert graph.table_size() == before


def test_random_split():
    parts = random_split(pairs(), [7, 3], generator=tw.Generator().manual_seed(0))
    assert [len(p) for p in parts] == [7, 3]
    assert sorted(s[1].item() for p in parts for s in p) == list(range(10))
    assert [len(p) for p in random_split(pairs(), [0.5, 0.25, 0.25])] == [6, 2, 2]
    with pytest.raises(ValueError, match="does not equal the length"):
        random_split(pairs(), [7, 4])


def test_samplers():
    assert list(SequentialSampler(range(3))) == [0, 1, 2]
    assert sorted(RandomSampler(range(9))) == list(range(9))
    drawn = list(RandomSampler(range(3), replacement=True, num_samples=20))
    assert len(drawn) == 20 and set(drawn) <= {0, 1, 2}
    assert len(list(RandomSampler(range(3), num_samples=7))) == 7
    assert sorted(SubsetRandomSampler([5, 7, 9])) == [5, 7, 9]
    assert set(WeightedRandomSampler([0.0, 1.0, 3.0], 50)) == {1, 2}
    assert sorted(WeightedRandomSampler([1.0, 1.0, 3.0], 3, replacement=False)) == [0, 1, 2]
    assert list(BatchSampler(range(5), 2, False)) == [[0, 1], [2, 3], [4]]
    assert list(BatchSampler(range(5), 2, True)) == [[0, 1], [2, 3]]
    for bad in (0, -1, 1.5, True):
        with pytest.raises(ValueError, match="positive integer"):
            BatchSampler(range(5), bad, False)
    with pytest.raises(ValueError, match="num_samples should be"):
        RandomSampler(range(3), num_samples=0)


def test_collate_is_pytorchs(torch):
    Point = namedtuple("Point", "x y")
    samples = [
        [np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)],
        [1, 2, 3],
        [1.5, 2.5],
        [True, False],
        ["a", "b"],
        [(1, "a", 2.0), (3, "b", 4.0)],
        [{"x": np.float64(1), "y": [1, 2]}, {"x": np.float64(2), "y": [3, 4]}],
        [Point(1, 2.0), Point(3, 4.0)],
    ]
    for sample in samples:
        ours, theirs = default_collate(sample), torch.utils.data.default_collate(sample)
        assert same(ours, theirs), (ours, theirs)


def same(a, b):
    if isinstance(a, tw.Tensor):
        return str(a.dtype) == str(b.dtype) and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)) and not isinstance(a, str):
        alike = type(a).__name__ == type(b).__name__ or isinstance(a, list)
        return alike and len(a) == len(b) and all(map(same, a, b))
    return a == b


def test_collate_of_tensors():
    rows = [tw.ones(2), tw.zeros(2)]
    assert default_collate(rows).tolist() == [[1, 1], [0, 0]]
    rows[0].requires_grad_()
    assert default_collate(rows).requires_grad
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([tw.ones(2), tw.ones(3)])
    with pytest.raises(RuntimeError, match="equal size"):
        default_collate([[1], [1, 2]])
    with pytest.raises(TypeError, match="must contain tensors"):
        default_collate([object()])


def test_iterators_are_pytorchs(torch):
    """An error in a sample ends its batch alone, and iterators tell their length and indices."""

    class Broken:
        def __len__(self):
            return 7

        def __getitem__(self, i):
            if i == 3:
                raise ValueError("no three")
            return i

    class Stream:
        def __iter__(self):
            return iter(range(5))

    def seen(module):
        data = module.utils.data
        loader = data.DataLoader(Broken(), 2)
        batches = iter(loader)
        found = [len(batches), loader._auto_collation, list(loader._index_sampler)]
        for _ in range(6):
            try:
                found.append(next(batches).tolist())
            except (ValueError, StopIteration) as error:
                found.append(type(error))
        found += [
            isinstance(batches, data.dataloader._BaseDataLoaderIter),
            iter(batches) is batches,
        ]
        stream = type("Stream", (Stream, data.IterableDataset), {})()
        for options in (
            {"batch_size": 2},
            {"batch_size": 2, "drop_last": True},
            {"batch_size": None},
        ):
            loader = data.DataLoader(stream, **options)
            found.append([b if isinstance(b, int) else b.tolist() for b in loader])
            found += [type(loader.sampler).__name__, loader.batch_sampler is None]
        return found

    assert seen(tw) == seen(torch)


def test_a_stream_begins_once(torch):
    """The iterators of transformers' pipelines begin again whenever `iter` is called on them."""

    def seen(t):
        class Again(t.utils.data.IterableDataset):
            def __iter__(self):
                self.rest = iter(range(5))
                return self

            def __next__(self):
                return next(self.rest)

        return [
            [batch.tolist() for batch in t.utils.data.DataLoader(Again(), n, drop_last=drop)]
            for n in (1, 2, 5, 6)
            for drop in (False, True)
        ]

    assert seen(tw) == seen(torch)


def test_a_loader_that_answers_for_its_indices():
    """Packages override what a loader asks, as torchtuples does to read whole batches."""

    class Whole(tw.utils.data.DataLoader):
        _auto_collation = False

        @property
        def _index_sampler(self):
            return self.batch_sampler

    loader = Whole(np.arange(10) * 2, batch_size=4, collate_fn=lambda batch: batch)
    assert [b.tolist() for b in loader] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18]]


def test_errors_and_warnings():
    data = pairs()
    with pytest.raises(ValueError, match="mutually exclusive with shuffle"):
        DataLoader(data, sampler=[1], shuffle=True)
    with pytest.raises(ValueError, match="mutually exclusive with batch_size"):
        DataLoader(data, 2, batch_sampler=[[1]])
    with pytest.raises(ValueError, match="unspecified shuffle"):
        DataLoader(Stream(), shuffle=True)
    with pytest.raises(ValueError, match="positive integer"):
        DataLoader(data, 0)
    with pytest.raises(ValueError, match="non-negative"):
        DataLoader(data, num_workers=-1)
    with pytest.raises(NotImplementedError, match="__getitem__"):
        Dataset()[0]


@pytest.mark.parametrize("size, replicas", [(10, 3), (9, 3), (2, 5), (1, 4)])
@pytest.mark.parametrize("drop_last", [False, True])
def test_parts_of_a_dataset_for_each_replica(torch, size, replicas, drop_last):
    options = {"num_replicas": replicas, "drop_last": drop_last}
    parts = []
    for rank in range(replicas):
        ours = DistributedSampler(range(size), rank=rank, shuffle=False, **options)
        theirs = torch.utils.data.DistributedSampler(
            range(size), rank=rank, shuffle=False, **options
        )
        assert list(ours) == list(theirs) and len(ours) == len(theirs)
        shuffled = DistributedSampler(range(size), rank=rank, seed=3, **options)
        orders = []
        for epoch in (0, 1, 0):
            shuffled.set_epoch(epoch)
            orders.append(list(shuffled))
        assert orders[0] == orders[2] and len(orders[0]) == len(ours)
        parts += orders[0]
    if not drop_last:
        assert set(parts) == set(range(size))


def test_replicas_must_be_known():
    with pytest.raises(ValueError, match="process group has not been initialized"):
        DistributedSampler(range(3))
    with pytest.raises(
        ValueError, match=r"Invalid rank 3, rank should be in the interval \[0, 2\]"
    ):
        DistributedSampler(range(3), 3, 3)


@pytest.mark.torch
def test_several_samples_of_nested_datasets(torch):
    def seen(lib):
        d = lib.utils.data
        base = d.TensorDataset(lib.arange(1, 6))
        nested = d.Subset(d.Subset(base, [0, 1, 2, 3, 4]), [4, 3, 2, 1, 0])
        stacked = d.StackDataset(d.Subset(list("abcde"), [1, 2, 3]), range(3))
        named = d.StackDataset(a=list("abc"), b=range(3))
        batch = next(iter(d.DataLoader(named, batch_size=2)))
        return [
            nested[:][0].tolist(),
            nested[[0, 2]][0].tolist(),
            stacked.__getitems__([2, 0]),
            named.__getitems__([1]),
            batch["a"],
            batch["b"].tolist(),
        ]

    assert seen(tw) == seen(torch)


@pytest.mark.parametrize("replacement", [True, False])
def test_samplers_draw_at_the_first_sample(replacement):
    samplers = [
        WeightedRandomSampler([0.1, 0.5, 0.4, 0.2], 4, replacement),
        RandomSampler(range(4), replacement, num_samples=12),
    ]
    for sampler in samplers:
        first, second = iter(sampler), iter(sampler)
        drawn = []
        for each in (first, second):
            tw.manual_seed(0)
            drawn.append([next(each)])
        for _ in range(len(sampler) - 1):  # two at a time
            for each, found in zip((first, second), drawn):
                found.append(next(each))
        assert drawn[0] == drawn[1]
