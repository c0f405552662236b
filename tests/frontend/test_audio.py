"""torchaudio's operators: recursive filters, the transducer's loss, alignment."""

import itertools
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.audio import operators  # defines them

pytestmark = pytest.mark.computes
OPS = tw.ops.torchaudio
assert operators


@pytest.mark.parametrize(("order", "samples"), [(3, 200), (2, 64), (1, 9), (70, 150), (4, 3)])
def test_filters(order: int, samples: int) -> None:
    signal = pytest.importorskip("scipy.signal")
    random = np.random.RandomState(0)
    x = random.randn(2, 3, samples)
    a = np.concatenate([np.ones((3, 1)), random.randn(3, order - 1) * 0.4 / order], 1)
    padded = tw.zeros(2, 3, order - 1 + samples, dtype=tw.float64)
    flipped = a[:, ::-1].copy()
    OPS._lfilter_core_loop(tw.from_numpy(x), tw.from_numpy(flipped), padded)
    want = np.stack([signal.lfilter([1.0], a[c], x[:, c]) for c in range(3)], 1)
    np.testing.assert_allclose(padded[..., order - 1 :].numpy(), want, rtol=1e-12, atol=1e-12)


def test_overdrive() -> None:
    random = np.random.RandomState(1)
    wave, wet = random.randn(2, 130), random.randn(2, 130)
    first, before = random.randn(2), random.randn(2)
    out = tw.zeros(2, 130, dtype=tw.float64)
    OPS._overdrive_core_loop(*map(tw.from_numpy, (wave, wet, first.copy(), before.copy())), out)
    want = np.empty_like(wave)
    for t in range(130):
        before, first = wet[:, t] - first + 0.995 * before, wet[:, t]
        want[:, t] = wave[:, t] * 0.5 + before * 0.75
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-12, atol=1e-12)


def _transducer(torch: Any, scores: Any, labels: list[int], blank: int) -> Any:
    """The cost by the sum over all ways, each a sequence of blanks and labels."""
    frames, ways = scores.shape[0], []
    for places in itertools.combinations_with_replacement(range(frames), len(labels)):
        t = u = 0
        total = scores.new_zeros(())
        while t < frames:
            if u < len(labels) and places[u] == t:
                total, u = total + scores[t, u, labels[u]], u + 1
            else:
                total, t = total + scores[t, u, blank], t + 1
        ways.append(total)
    return -torch.logsumexp(torch.stack(ways), 0)


@pytest.mark.parametrize("fused", [True, False])
def test_transducers(torch: Any, fused: bool) -> None:
    logits = np.random.RandomState(2).randn(2, 4, 3, 5)
    targets, frames, counts = [[1, 3], [2, 0]], [4, 3], [2, 1]
    cost, grad = OPS.rnnt_loss_forward(
        tw.from_numpy(logits), tw.tensor(targets), tw.tensor(frames), tw.tensor(counts),
        4, -1.0, fused,
    )  # fmt: skip
    x = torch.from_numpy(logits).requires_grad_()
    scores = x.log_softmax(-1) if fused else x
    want = [
        _transducer(torch, scores[i, : frames[i], : counts[i] + 1], targets[i][: counts[i]], 4)
        for i in range(2)
    ]
    sum(want).backward()  # type: ignore[union-attr]
    np.testing.assert_allclose(cost.numpy(), [w.item() for w in want], rtol=1e-12)
    np.testing.assert_allclose(grad.numpy(), x.grad.numpy(), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("labels", [[1, 2], [1, 1], [2], [1, 2, 1]])
def test_alignment(labels: list[int]) -> None:
    scores = np.random.RandomState(len(labels)).randn(1, 6, 3)
    log_probs = tw.from_numpy(scores)
    lengths = tw.tensor([6]), tw.tensor([len(labels)])
    path, _ = OPS.forced_align(log_probs, tw.tensor([labels]), *lengths, 0)

    def collapsed(way: tuple[int, ...]) -> list[int]:
        return [k for k, _ in itertools.groupby(way) if k]

    ways = [w for w in itertools.product(range(3), repeat=6) if collapsed(w) == labels]
    best = max(ways, key=lambda w: scores[0, range(6), w].sum())
    assert path.tolist() == [list(best)]


def test_too_many_labels_are_refused() -> None:
    few, lengths = tw.zeros(1, 2, 3), (tw.tensor([2]), tw.tensor([2]))
    with pytest.raises(RuntimeError, match="2 labels, 1 of them repeated, don't fit into 2 frames"):
        OPS.forced_align(few, tw.tensor([[1, 1]]), *lengths, 0)
