"""Functions that torch has beside those of torch.nn.functional, against PyTorch."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tilewright

pytestmark = pytest.mark.computes


def _data(T: Any, *shape: int, seed: int = 0) -> Any:
    return T.tensor(np.random.RandomState(seed).randn(*shape).astype(np.float32))


def _weights(T: Any, gates: int, layers: int, directions: int) -> list[Any]:
    found = []
    for i in range(layers * directions):
        inputs = 3 if i < directions else 4 * directions
        shapes = ((gates * 4, inputs), (gates * 4, 4), (gates * 4,), (gates * 4,))
        found += [_data(T, *shape, seed=i * 4 + k) for k, shape in enumerate(shapes)]
    return found


CALLS: dict[str, Any] = {
    "embedding": lambda T, d: T.embedding(d(5, 3), T.tensor([[0, 4], [2, 2]])),
    "embedding_bag sum": lambda T, d: T.embedding_bag(
        d(5, 3), T.tensor([0, 1, 4, 2]), T.tensor([0, 2, 2])
    )[0],
    "embedding_bag max": lambda T, d: T.embedding_bag(
        d(5, 3), T.tensor([0, 1, 4, 2]), T.tensor([0, 3]), False, 2
    ),
    "embedding_bag mean": lambda T, d: T.embedding_bag(
        d(5, 3), T.tensor([0, 1, 4, 2]), T.tensor([0, 3]), False, 1
    )[:3],
    "embedding_renorm_": lambda T, d: T.embedding_renorm_(d(5, 3), T.tensor([1, 3]), 0.5, 2.0),
    "kl_div": lambda T, d: T.kl_div(d(3, 4), d(3, 4).softmax(-1)),
    "kl_div none": lambda T, d: T.kl_div(d(3, 4), d(3, 4), 0, log_target=True),
    "bce": lambda T, d: T.binary_cross_entropy_with_logits(d(6), T.ones(6), None, None, 2),
    "cosine": lambda T, d: T.cosine_embedding_loss(d(4, 3), d(4, 3) * 2, -T.ones(4), 0.1, 0),
    "ranking": lambda T, d: T.margin_ranking_loss(d(4), d(4) * 2, T.ones(4), 0.1),
    "triplet": lambda T, d: T.triplet_margin_loss(d(4, 3), d(4, 3) * 2, d(4, 3) * 3),
    "poisson": lambda T, d: T.poisson_nll_loss(d(4), T.ones(4), True, False, 1e-8, 1),
    "grid": lambda T, d: T.grid_sampler(
        d(1, 2, 4, 4), T.affine_grid_generator(d(1, 2, 3) / 3, (1, 2, 3, 3), False), 0, 1, False
    ),
    "pad": lambda T, d: T.constant_pad_nd(d(2, 3), (1, 2, 0, 1), 7.0),
    "convolution": lambda T, d: T.convolution(
        d(2, 4, 5, 5), d(6, 2, 3, 3), d(6), [2, 1], [1, 0], [1, 1], False, [0, 0], 2
    ),
    "convolution transposed": lambda T, d: T.convolution(
        d(2, 4, 5), d(4, 3, 3), None, [2], [1], [1], True, [1], 1
    ),
    "layer_norm": lambda T, d: T.native_layer_norm(d(2, 3, 4), [3, 4], d(3, 4), d(3, 4), 1e-5),
    "group_norm": lambda T, d: T.native_group_norm(d(2, 4, 3), d(4), d(4), 2, 4, 3, 2, 1e-5),
    "batch_norm": lambda T, d: T.native_batch_norm(
        d(3, 4, 2), d(4), d(4), T.zeros(4), T.ones(4), True, 0.1, 1e-5
    ),
    "batch_norm eval": lambda T, d: T.native_batch_norm(
        d(3, 4, 2), d(4), d(4), T.zeros(4), T.ones(4), False, 0.1, 1e-5
    )[0],
    "native_dropout": lambda T, d: T.native_dropout(d(7), 0.5, False),
    "dropout of all": lambda T, d: T.feature_dropout(d(2, 3, 4), 1.0, True),
    "lstm": lambda T, d: T.lstm(
        d(5, 2, 3), (d(4, 2, 4), d(4, 2, 4)), _weights(T, 4, 2, 2), True, 2, 0.0, False, True, False
    ),
    "gru": lambda T, d: T.gru(
        d(2, 5, 3), d(1, 2, 4), _weights(T, 3, 1, 1), True, 1, 0.0, False, False, True
    ),
    "rnn_tanh": lambda T, d: T.rnn_tanh(
        d(5, 2, 3), d(1, 2, 4), _weights(T, 1, 1, 1), True, 1, 0.0, False, False, False
    ),
    "lstm_cell": lambda T, d: T.lstm_cell(d(2, 3), (d(2, 4), d(2, 4)), *_weights(T, 4, 1, 1)),
    "gru_cell": lambda T, d: T.gru_cell(d(2, 3), d(2, 4), *_weights(T, 3, 1, 1)),
    "rnn_relu_cell": lambda T, d: T.rnn_relu_cell(d(2, 3), d(2, 4), *_weights(T, 1, 1, 1)),
    "pixel_unshuffle": lambda T, d: T.pixel_unshuffle(d(1, 2, 4, 4), 2),
    "channel_shuffle": lambda T, d: T.channel_shuffle(d(1, 4, 2, 2), 2),
    "view_as_real_copy": lambda T, d: T.view_as_real_copy(T.complex(d(3), d(3))),
    "get_device": lambda T, d: T.tensor(T.get_device(d(1))),
    "hash floats": lambda T, d: T.hash_tensor(d(3, 4)).to(T.int64),
    "hash integers": lambda T, d: T.hash_tensor(T.arange(12).view(3, 4), 1).to(T.int64),
    "shape": lambda T, d: T._shape_as_tensor(d(3, 4)),
    "memory_of_others": lambda T, d: T.tensor(
        [
            T._has_compatible_shallow_copy_type(d(3, 4), other)
            for other in (d(2).double(), d(2).to("meta"), d(2, 2).to_sparse())
        ]
    ),
    "set_flush_denormal": lambda T, d: T.tensor(T.set_flush_denormal(False)),
    "offset": lambda T, d: T.tensor([T.Generator().device.type == "cpu"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_root_functions(torch: Any, name: str) -> None:
    def run(T: Any) -> list[np.ndarray]:
        found = CALLS[name](T, lambda *shape: _data(T, *shape))
        return [p.numpy() for p in (found if isinstance(found, tuple) else (found,))]

    for ours, theirs in zip(run(tilewright), run(torch), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=1e-5)


def test_range_warns_and_has_its_end(torch: Any) -> None:
    for arguments in ((3,), (1, 4), (0, 1, 0.25), (5, 1, -2)):
        with pytest.warns(UserWarning, match="torch.range is deprecated"):
            ours = tilewright.range(*arguments)
        with pytest.warns(UserWarning):
            theirs = torch.range(*arguments if len(arguments) > 1 else (0, *arguments))
        assert ours.tolist() == pytest.approx(theirs.tolist())
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="step must be nonzero"):
        tilewright.range(0, 3, -1)


def test_lobpcg_finds_the_best_eigenpairs(torch: Any) -> None:
    # In float64 from the start: b @ b.T is symmetric to the last digit or two on each processor.
    a, b = _data(torch, 9, 9).double(), _data(torch, 9, 9, seed=1).double()
    a, b = a + a.T, b @ b.T + 9 * torch.eye(9)
    for largest in (True, False):
        expected, _ = torch.lobpcg(a, 2, b, largest=largest, niter=200, tol=1e-10)
        A, B = tilewright.tensor(a.numpy()), tilewright.tensor(b.numpy())
        values, vectors = tilewright.lobpcg(A, 2, B, largest=largest)
        np.testing.assert_allclose(values.numpy(), expected.numpy(), rtol=1e-6)
        np.testing.assert_allclose((A @ vectors).numpy(), (B @ vectors * values).numpy(), atol=1e-8)


def test_typed_storages_and_files(torch: Any, tmp_path: Any) -> None:
    def run(T: Any, name: str) -> list[Any]:
        storage = T.FloatStorage([1.0, 2.0])
        path = str(tmp_path / name)
        written = T.from_file(path, shared=True, size=3, dtype=T.int32)
        written[1] = 5
        again = T.from_file(path, shared=False, size=3, dtype=T.int32)
        return [
            storage.tolist(), isinstance(T.ones(2).storage(), T.FloatStorage),
            isinstance(T.ones(2).storage(), T.LongStorage), T.LongStorage(3).size(),
            again.tolist(), T.IntStorage.from_file(path, False, 3).tolist(),
        ]  # fmt: skip

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says once in a process that it is deprecated
        theirs = run(torch, "theirs")
    assert run(tilewright, "ours") == theirs
