"""Programs whose steps factor matrices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from . import Draw, program


@program
def gaussian_process(torch: Any, draw: Draw) -> Iterator[Any]:
    """The marginal likelihood of a Gaussian process, and its prediction."""
    x, target = draw(9, 2), draw(9)
    logs = [draw.tensor([value], True) for value in (0.1, -0.2, -1.0)]
    optimizer = torch.optim.Adam(logs, lr=0.05)

    def kernel(a: Any, b: Any) -> Any:
        apart = (a[:, None] - b[None]).square().sum(-1)
        return logs[0].exp() * torch.exp(-apart / (2 * (2 * logs[1]).exp()))

    while True:
        optimizer.zero_grad()
        cov = kernel(x, x) + logs[2].exp() * torch.eye(9)
        factor = torch.linalg.cholesky(cov)
        alpha = torch.cholesky_solve(target[:, None], factor)
        fit = 0.5 * (target @ alpha).squeeze()
        loss = fit + factor.diagonal().log().sum() + 4.5 * math.log(2 * math.pi)
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            at = draw(4, 2)
            across = kernel(at, x)
            half = torch.linalg.solve_triangular(factor.detach(), across.mT, upper=False)
            spread = logs[0].exp() - half.square().sum(0)
        yield loss, across @ alpha.detach(), spread, logs


@program
def whitening(torch: Any, draw: Draw) -> Iterator[Any]:
    """A layer that makes features uncorrelated: the inverse root of their covariance."""
    layer = draw.into(torch.nn.Linear(4, 4))
    head = draw.into(torch.nn.Linear(4, 2))
    optimizer = torch.optim.SGD([*layer.parameters(), *head.parameters()], lr=0.02)
    scales = torch.tensor([1.0, 2.0, 4.0, 8.0])
    while True:
        optimizer.zero_grad()
        features = layer(draw(32, 4) * scales)
        centered = features - features.mean(0)
        values, vectors = torch.linalg.eigh(centered.mT @ centered / 31 + 0.1 * torch.eye(4))
        white = centered @ (vectors * values.rsqrt()) @ vectors.mT
        loss = torch.nn.functional.cross_entropy(head(white), draw.classes(2, 32))
        loss.backward()
        optimizer.step()
        yield loss, white, values, layer


@program
def spectral_norm(torch: Any, draw: Draw) -> Iterator[Any]:
    """Weights divided by their largest singular value, and a nuclear norm that makes rank low."""
    weight = torch.nn.Parameter(draw(5, 3))
    optimizer = torch.optim.SGD([weight], lr=0.05)
    while True:
        optimizer.zero_grad()
        x, y = draw(8, 3), draw(8, 5)
        unit = weight / torch.linalg.matrix_norm(weight, 2)
        nuclear = torch.linalg.svdvals(weight).sum()
        loss = (x @ unit.mT - y).square().mean() + 0.01 * nuclear
        loss.backward()
        optimizer.step()
        yield loss, unit, weight


@program
def failures(torch: Any, draw: Draw) -> Iterator[Any]:
    """A factorization that fails at each second step, and a program that goes on."""
    weight = torch.nn.Parameter(torch.eye(3) * 2)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    sign = 1.0
    while True:
        optimizer.zero_grad()
        caught = False
        try:
            loss = torch.logdet(torch.linalg.cholesky(sign * (weight @ weight.mT)))
            loss.backward()
            optimizer.step()
            loss.item()
        except torch.linalg.LinAlgError:
            caught = True
        sign = -sign
        yield caught, weight


@program
def jitter_until_there_is_a_factor(torch: Any, draw: Draw) -> Iterator[Any]:
    """A covariance that gets a larger diagonal for as long as Cholesky's factorization fails."""
    scale = torch.nn.Parameter(torch.tensor(0.5))
    optimizer = torch.optim.Adam([scale], lr=0.05)

    def factor(cov: Any) -> Any:
        for power in range(-6, 1):
            try:
                return power, torch.linalg.cholesky(cov + 10.0**power * torch.eye(len(cov)))
            except RuntimeError:
                continue
        raise AssertionError

    while True:
        optimizer.zero_grad()
        x = draw(6, 2)
        power, root = factor(scale * x @ x.mT - 0.05 * torch.eye(6))
        loss = root.diagonal().log().sum() - root.sum()
        loss.backward()
        optimizer.step()
        yield power, loss, root, scale


@program
def inverse_or_another_matrix(torch: Any, draw: Draw) -> Iterator[Any]:
    """Newton's steps: where the Hessian has no inverse, a function of the program takes another
    matrix, and counts."""
    weight = draw(3)
    failed = 0

    def solved(hessian: Any, slope: Any) -> Any:
        nonlocal failed
        try:
            return torch.linalg.solve(hessian, slope)
        except RuntimeError as error:
            failed += isinstance(error, torch.linalg.LinAlgError)
            return torch.linalg.pinv(hessian) @ slope

    while True:
        x = draw(2 + 2 * draw.below(2), 3)  # with two rows the Hessian is singular
        x[:, 2] = 0 if len(x) == 2 else x[:, 2]
        target = draw(len(x))
        residue = x @ weight - target
        weight = weight - 0.5 * solved(x.mT @ x, x.mT @ residue)
        yield residue.square().mean(), weight, failed


@program(varies="each arm is drawn another number of times")
def linear_bandits(torch: Any, draw: Draw) -> Iterator[Any]:
    """Reads numbers of small products and inverses, and adds to a list of matrices."""
    arms = draw(3, 4)
    seen = [torch.eye(4) for _ in range(3)]
    paid = [torch.zeros(4) for _ in range(3)]
    while True:
        chosen = []
        for _ in range(4):
            x, bounds = draw(4), []
            for a, b in zip(seen, paid):
                inverse = torch.inverse(a)
                width = torch.sqrt(x @ inverse @ x)
                bounds.append((inverse.mv(b).dot(x) + 0.5 * width).item())
            best = bounds.index(max(bounds))
            reward = (arms[best] @ x).item()
            seen[best] += torch.outer(x, x)
            paid[best] += reward * x
            chosen.append(best)
        yield chosen, seen, paid


@program
def particles_drawn_again(torch: Any, draw: Draw) -> Iterator[Any]:
    """Particles are weighed, and picked by their weights where few of these are left."""
    count = 12
    particles, weights = draw(count), torch.ones(count) / count
    places = (torch.arange(count) + 0.5) / count
    while True:
        particles = particles + 0.3 * draw(count)
        weights = weights * torch.exp(-0.5 * (draw() - particles) ** 2)
        weights = weights / weights.sum()
        mean = (weights * particles).sum()
        few = bool(1 / (weights**2).sum() < 0.8 * count)
        if few:
            ends = weights.cumsum(0)
            particles = particles[torch.searchsorted(ends, places).clamp(max=count - 1)]
            weights = torch.full((count,), 1 / count)
        yield few, mean, particles
