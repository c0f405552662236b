"""Indices of all forms, read and written, and those that are refused."""

from __future__ import annotations

import numpy as np

from . import program, raised


@program(varies="masks select another number of elements in each step")
def parts_by_every_kind_of_index(torch, draw):
    i, near = torch.tensor([2, 0, -1]), torch.tensor([2, 0, 4])
    while True:
        x = draw(4, 5, 6)
        m = x > 0
        yield [
            (x[None], x[..., 1], x[:, None, 2], x[1, ..., None], x[..., None, :], x[True]),
            (x[[0, 2]], x[[0, 2], [1, 3]], x[range(2)], x[np.array([1, 2])], x[np.int64(1)]),
            (x[m], x[m[:, :, 0]], x[:, [True, False, True, False, True]], x[m[:, 0, 0], 3]),
            (x[i], x[:, i], x[i, :, i], x[i[:, None], i], x[..., i], x[i, None, i], x[None, i]),
            (x[torch.tensor(1)], x[1:3, ::2, 3:], x[-1], x[(0, 1)], x[:, 1:1], x[:, :, -2:]),
            (x.index_select(1, near), x.take(near), x.gather(2, draw.classes(6, 4, 5, 2))),
            (torch.take_along_dim(x, x.argsort(1), 1), x.masked_select(m), m.nonzero()),
            (x.index_fill(0, near % 4, 3.0), x.index_put((i,), draw(5, 6), accumulate=True)),
            (x.scatter(1, draw.classes(5, 4, 2, 6), 1.5), x.unfold(2, 3, 2), x.select(0, 2)),
        ]


@program
def parts_written_by_every_kind_of_index(torch, draw):
    i = torch.tensor([2, 0, -1])
    x = draw(4, 5, 6)
    while True:
        m = draw(4, 5, 6) > 0
        x[0] = 1
        x[:, 1] = torch.arange(6).to(x.dtype)
        x[m] = -1
        x[i, i] = 5.0
        x[..., -1] += 2
        x[[0, 1], :, 2] = x[[2, 3], :, 2]
        x[x > 3] *= 0.5
        x[1, 2, 3] = draw(1)[0]
        x[:, None, 2].zero_()
        x[None, 1] = 9
        x[m[:, 0, 0], 3] = 0
        x[2:, [0, 1]] = draw(2, 2, 6)
        x[..., 0][..., 0] = 4
        yield x


@program(varies="some of the writes are made, to one tensor that nobody reads")
def indices_that_are_refused(torch, draw):
    x = draw(2, 3, 4)
    keys = [1.5, "a", {}, (1, "a"), object(), 1j, b"a", torch.tensor(1.5), torch.tensor([1.5])]
    keys += [slice(1.5), slice("a"), slice(None, None, 0), slice(None, None, -1), slice(0, 1, "a")]
    keys += [
        [True],
        np.array([[True, False, True]]),
        -5,
        10,
        (0, 0, 9),
        (0, 0, 0, 0),
        x > x.new_zeros(1),
    ]
    while True:
        yield [raised(lambda k=k: x[k].sum().item()) for k in keys[:-1]], x[keys[-1]]
        yield [raised(x.__setitem__, k, 1.0) for k in keys[:-7]], raised(x.__setitem__, 0, draw(7))
