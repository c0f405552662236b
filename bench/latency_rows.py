"""The rows of bench/latency.py: programs that run for the first time.

Both frameworks run the same code with equal weights and data, and nothing is drawn at random.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import models
import numpy as np
import workloads

Wrap = workloads.Wrap
Values = list[Any]  # numbers, tensors, and lists of tensors


@dataclass(frozen=True)
class Row:
    """A program. make(torch, wrap, steps) builds its models and data and returns what is timed,
    a function whose results are read within that time and then compared.

    lengths: whether each step has tensors of other sizes. compiles: whether `wrap` is used. ops:
    how many operations a step of a curve records.
    """

    name: str
    make: Callable[[Any, Wrap, int], Callable[[], Values]]
    steps: int = 1
    lengths: bool = False
    compiles: bool = True
    ops: int = 1


def filled(torch: Any, model: Any) -> Any:
    """`model` with fixed weights, computed."""
    for value in models.filled(torch, model).state_dict().values():
        value.detach().numpy()
    return model


def learned(model: Any) -> Values:
    """The weights and gradients of a model."""
    weights = list(model.parameters())
    return [weights, [p.grad for p in weights]]


# Training.

Batch = tuple[Any, Any]


def squares(torch: Any, model: Any, x: Any, y: Any) -> Any:
    return (model(x) - y).square().mean()


def _classes(torch: Any, model: Any, x: Any, y: Any) -> Any:
    return torch.nn.functional.cross_entropy(model(x), y)


def _tagged(torch: Any, model: Any, x: Any, y: Any) -> Any:
    """The loss of a class for each token."""
    return torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def _own(torch: Any, model: Any, x: Any, y: Any) -> Any:
    """The loss of a model that returns it."""
    return model(x, y)


def trained(
    build: Callable[[Any], Any],
    batches: Callable[[Any, int], list[Batch]],
    loss_of: Callable[[Any, Any, Any, Any], Any],
    optimizer: Callable[[Any, Any], Any] = lambda torch, ps: torch.optim.SGD(ps, lr=0.01),
) -> Any:
    """A training step for each batch. The loss is read after each."""

    def make(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
        model = filled(torch, build(torch))
        updates = optimizer(torch, model.parameters())
        data, wrapped = batches(torch, steps), wrap(model)

        def run() -> Values:
            losses = []
            for x, y in data:
                updates.zero_grad()
                loss = loss_of(torch, wrapped, x, y)
                loss.backward()
                updates.step()
                losses.append(loss.item())
            return [*losses, *learned(model)]

        return run

    return make


def once(data: Callable[[Any], Batch]) -> Callable[[Any, int], list[Batch]]:
    return lambda torch, steps: [data(torch)] * steps


def _lengths(steps: int, low: int, high: int | None = None) -> list[int]:
    """Lengths in mixed order: all different unless `high` (exclusive) leaves too few."""
    high = high or low + steps
    repeats = -(-steps // (high - low))
    mixed = np.random.default_rng(0).permutation(np.tile(np.arange(low, high), repeats))
    return [int(n) for n in mixed[:steps]]


def _adam(torch: Any, parameters: Any) -> Any:
    return torch.optim.Adam(parameters, lr=1e-3)


def cnn(torch: Any) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 10),
    )


def _encoder(layers: int, width: int) -> Callable[[Any], Any]:
    return lambda torch: models.encoder(
        torch, layers=layers, heads=4, width=width, hidden=2 * width, dropout=0.0
    )


def _sequence(batch: int, time: int, width: int) -> Callable[[Any], Batch]:
    shape = (batch, time, width)
    return lambda torch: tuple(workloads.inputs(torch, shape, shape))


FIRST = [
    Row(
        "first step, MLP",
        trained(
            lambda torch: models.mlp(torch, 64, 128, 10),
            once(workloads._samples(32, 10, 64)),
            _classes,
            _adam,
        ),
    ),
    Row(
        "first step, CNN on 28x28",
        trained(cnn, once(workloads._samples(32, 10, 1, 28, 28)), _classes),
    ),
    Row(
        "first step, encoder of 4 layers",
        trained(_encoder(4, 64), once(_sequence(4, 16, 64)), squares, _adam),
    ),
    Row(
        "first step, LSTM of 2 layers",
        trained(
            lambda torch: models.lstm(torch, layers=2, width=64, vocab=64),
            once(workloads._tokens(64, 16, 8)),
            _own,
        ),
    ),
    Row(
        "first step, ResNet-18",
        trained(models.resnet18, once(workloads._samples(8, 10, 3, 32, 32)), _classes),
    ),
]


# Another length at each step.


def tagger(torch: Any) -> Any:
    return torch.nn.Sequential(torch.nn.Embedding(50, 16), *models.mlp(torch, 16, 32, 50))


def convolved(torch: Any) -> Any:
    nn = torch.nn
    layers = [nn.Conv1d(8, 16, 3, padding=1), nn.BatchNorm1d(16), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(16, 10))


def gru(torch: Any) -> Any:
    """A GRU written as a loop over x[time, batch, 8]."""

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.head = torch.nn.GRUCell(8, 16), torch.nn.Linear(16, 10)

        def forward(self, x: Any) -> Any:
            h = torch.zeros(x.shape[1], 16)
            for t in range(x.shape[0]):
                h = self.cell(x[t], h)
            return self.head(h)

    return Model()


LENGTHS = [
    Row(
        "another length, embedding and MLP",
        trained(
            tagger,
            lambda torch, steps: [workloads._tokens(50, 4, n)(torch) for n in _lengths(steps, 5)],
            _tagged,
        ),
        60,
        lengths=True,
    ),
    Row(
        "another length, Transformer",
        trained(
            _encoder(2, 32),
            lambda torch, steps: [_sequence(4, n, 32)(torch) for n in _lengths(steps, 5)],
            squares,
        ),
        60,
        lengths=True,
    ),
    Row(
        "another length, 4 layers of BERT's width",
        trained(
            _encoder(4, 768),
            lambda torch, steps: [_sequence(2, n, 768)(torch) for n in _lengths(steps, 50)],
            squares,
        ),
        12,
        lengths=True,
    ),
    Row(
        "another length, LSTM",
        trained(
            lambda torch: models.lstm(torch, layers=1, width=32, vocab=50),
            lambda torch, steps: [workloads._tokens(50, n, 4)(torch) for n in _lengths(steps, 5)],
            _own,
        ),
        60,
        lengths=True,
    ),
    Row(
        "another length, Conv1d and batch norm",
        trained(
            convolved,
            lambda torch, steps: [
                workloads._samples(4, 10, 8, n)(torch) for n in _lengths(steps, 16)
            ],
            _classes,
        ),
        60,
        lengths=True,
    ),
    Row(
        "another length, unrolled GRUCell",
        trained(
            gru,
            lambda torch, steps: [
                (
                    workloads.inputs(torch, (n, 4, 8))[0],
                    workloads.integers(torch, 10, 4),
                )
                for n in _lengths(steps, 5, 26)
            ],
            _classes,
        ),
        60,
        lengths=True,
    ),
]


# Programs whose shape follows their data.


def written(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """A GPT that runs over the whole text for each token; each token is read."""
    model = models.gpt(torch, layers=2, heads=4, width=48, context=steps + 4, vocab=50)
    filled(torch, model)

    def following(tokens: Any) -> Any:
        time = tokens.shape[1]
        x = model.tokens(tokens) + model.positions(model.places[:time])
        for block in model.blocks:
            x = block(x, model.mask[:time, :time])
        return model.head(model.norm(x[:, -1]))

    following = wrap(following)
    start = torch.tensor([[3, 1, 4, 1]])

    def run() -> Values:
        tokens, read = start, []
        with torch.no_grad():
            for _ in range(steps):
                best = following(tokens).argmax(-1, keepdim=True)
                tokens = torch.cat([tokens, best], 1)
                read.append(best.item())
        return read

    return run


Tree = Any  # a token, or a pair of trees


def _tree(rng: random.Random, leaves: int) -> Tree:
    if leaves == 1:
        return rng.randrange(20)
    left = rng.randrange(1, leaves)
    return _tree(rng, left), _tree(rng, leaves - left)


def recursive(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """A training step for each of many random trees of up to 16 leaves."""
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.leaf, self.join, self.head = (
                nn.Embedding(20, 16),
                nn.Linear(32, 16),
                nn.Linear(16, 5),
            )

        def forward(self, tree: Tree) -> Any:
            return self.head(self.node(tree))

        def node(self, tree: Tree) -> Any:
            if isinstance(tree, int):
                return self.leaf(torch.tensor([tree]))
            left, right = tree
            return self.join(torch.cat([self.node(left), self.node(right)], 1)).tanh()

    rng = random.Random(0)
    trees = [_tree(rng, rng.randint(2, 16)) for _ in range(steps)]
    targets = [torch.tensor([k % 5]) for k in range(steps)]
    return trained(lambda _: Net(), lambda *_: list(zip(trees, targets)), _classes)(
        torch, wrap, steps
    )


def settled(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """Loops that end by a value of theirs."""
    inputs = [torch.linspace(0.1, 1, 10 + k) for k in range(steps)]

    def run() -> Values:
        out = []
        for x in inputs:
            while x.norm() > 1e-3:
                x = x * 0.7 - x.mean() * 0.01
            out.append(x)
        return out

    return run


PROGRAMS = [
    Row("GPT writes 100 tokens", written, 100, lengths=True),
    Row("recursive net, 100 trees", recursive, 100, compiles=False),
    Row("while x.norm() > 1e-3, 60 inputs", settled, 60, lengths=True, compiles=False),
]


# Reinforcement learning, in a world without chance: each action pushes a state of four numbers.


def _pushed(state: list[float], action: int) -> tuple[list[float], float]:
    """The next state, and the reward."""
    a, b, c, d = state
    force = 0.1 if action else -0.1
    state = [
        a + 0.1 * b,
        0.98 * b + force - 0.05 * math.sin(c),
        c + 0.1 * d,
        0.98 * d - force + 0.1 * c,
    ]
    return [math.tanh(s) for s in state], 1.0 - abs(a) - abs(c)


def q_learning(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """Acts one by one, and learns after each 20 acts."""
    model = filled(torch, models.mlp(torch, 4, 32, 2))
    updates = torch.optim.Adam(model.parameters(), lr=1e-3)
    wrapped = wrap(model)

    def learn(seen: list[tuple[list[float], int, float, list[float]]]) -> float:
        states, actions, rewards, after = (torch.tensor(list(column)) for column in zip(*seen))
        with torch.no_grad():
            wanted = rewards + 0.9 * wrapped(after).max(1).values
        found = wrapped(states).gather(1, actions[:, None])[:, 0]
        loss = torch.nn.functional.smooth_l1_loss(found, wanted)
        updates.zero_grad()
        loss.backward()
        updates.step()
        return float(loss.item())

    def run() -> Values:
        state, seen, losses = [0.1, -0.2, 0.3, 0.0], [], []
        for step in range(1, steps + 1):
            with torch.no_grad():
                action = int(wrapped(torch.tensor([state])).argmax(1).item())
            after, reward = _pushed(state, action)
            seen.append((state, action, reward, after))
            state = after
            if step % 20 == 0:
                losses.append(learn(seen[-20:]))
        return [*losses, *learned(model)]

    return run


def actor_critic(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """An update after each of three episodes of so many steps."""
    return _episodes(torch, wrap, [steps] * 3)


def other_episodes(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """An update after each of so many episodes, all of other lengths."""
    return _episodes(torch, wrap, _lengths(steps, 20))


def _episodes(torch: Any, wrap: Wrap, lengths: Sequence[int]) -> Callable[[], Values]:
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.actor, self.critic = (
                nn.Linear(4, 32),
                nn.Linear(32, 2),
                nn.Linear(32, 1),
            )

        def forward(self, x: Any) -> Any:
            h = self.body(x).relu()
            return self.actor(h).log_softmax(-1), self.critic(h)

    model = filled(torch, Net())
    updates = torch.optim.Adam(model.parameters(), lr=1e-3)
    wrapped = wrap(model)

    def run() -> Values:
        out: Values = []
        for episode, steps in enumerate(lengths):
            state, acts, rewards = [0.1, -0.2, 0.3, 0.1 * episode], [], []
            for _ in range(steps):
                chances, value = wrapped(torch.tensor(state))
                action = int(chances.argmax().item())
                acts.append((chances[action], value))
                state, reward = _pushed(state, action)
                rewards.append(reward)
            total, parts = 0.0, []
            for (chance, value), reward in zip(reversed(acts), reversed(rewards)):
                total = reward + 0.9 * total
                parts.append(-chance * (total - value.item()))
                goal = torch.tensor([total])
                parts.append(torch.nn.functional.smooth_l1_loss(value, goal))
            loss = torch.stack(parts).sum()
            updates.zero_grad()
            loss.backward()
            updates.step()
            out.append(loss.item())
        return [*out, *learned(model)]

    return run


# Derivatives of gradients, and functions of the program amid the pass.


def equation(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """A network that solves u_t + u u_x = u_xx / 100, on another number of points in each step."""
    nn = torch.nn
    model = nn.Sequential(
        nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)
    )
    filled(torch, model)
    updates = torch.optim.Adam(model.parameters(), lr=1e-3)

    def run() -> Values:
        out: Values = []
        for i in range(steps):
            x, t = (torch.linspace(0, end, 50 + i)[:, None].requires_grad_() for end in (1, 2))
            u = model(torch.cat([x, t], 1))
            ux, ut = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
            (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True)
            loss = (ut + u * ux - 0.01 * uxx).square().mean()
            updates.zero_grad()
            loss.backward()
            updates.step()
            out.append(loss.item())
        return [*out, *learned(model)]

    return run


def forces(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """Energies of molecules of 5 to 11 atoms, fitted to their gradients."""
    nn = torch.nn
    model = filled(torch, nn.Sequential(nn.Linear(8, 32), nn.SiLU(), nn.Linear(32, 1)))
    updates, centers = torch.optim.Adam(model.parameters(), lr=1e-3), torch.linspace(0, 3, 8)

    def run() -> Values:
        out: Values = []
        for i in range(steps):
            atoms = torch.linspace(-1, 1, 3 * (5 + i % 7)).sin().reshape(-1, 3).requires_grad_()
            far = (atoms[:, None] - atoms[None]).pow(2).sum(-1).add(1e-3).sqrt()
            energy = model(torch.exp(-((far[..., None] - centers) ** 2))).sum()
            (force,) = torch.autograd.grad(energy, atoms, create_graph=True)
            loss = force.square().mean() + (energy - 1) ** 2
            updates.zero_grad()
            loss.backward()
            updates.step()
            out.append(loss.item())
        return [*out, *learned(model)]

    return run


def hooked(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """Layers whose gradients' norms are read by hooks."""
    nn = torch.nn
    layers = [m for _ in range(4) for m in (nn.Linear(32, 32), nn.ReLU())]
    model = filled(torch, nn.Sequential(*layers))
    updates = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.linspace(-1, 1, 512).reshape(16, 32)

    def run() -> Values:
        norms: Values = []
        for _ in range(steps):
            h = x
            for layer in model:
                h = layer(h)
                h.register_hook(lambda g: norms.append(g.norm().item()))
            updates.zero_grad()
            h.square().mean().backward()
            updates.step()
        return [*norms, *learned(model)]

    return run


def reversed_gradient(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    """Two heads, of which one trains the body by its reversed gradient."""

    class Reversed(torch.autograd.Function):  # type: ignore[misc,name-defined]
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return -g

    nn, F = torch.nn, torch.nn.functional
    parts = nn.ModuleList([nn.Linear(32, 32), nn.Linear(32, 4), nn.Linear(32, 2)])
    body, first, second = filled(torch, parts)
    updates = torch.optim.SGD(parts.parameters(), lr=1e-2)

    def run() -> Values:
        out: Values = []
        for i in range(steps):
            x = torch.linspace(-1, 1, 32 * (8 + i % 16)).reshape(-1, 32)
            kinds = torch.arange(len(x))
            h = body(x).relu()
            loss = F.cross_entropy(first(h), kinds % 4)
            loss = loss + F.cross_entropy(second(Reversed.apply(h)), kinds % 2)
            updates.zero_grad()
            loss.backward()
            updates.step()
            out.append(loss.item())
        return [*out, *learned(parts)]

    return run


# Single operations.


def scaled(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    x = torch.linspace(0, 1, 100)
    return lambda: [float((x * i).sum()) for i in range(steps)]


def items(torch: Any, wrap: Wrap, steps: int) -> Callable[[], Values]:
    x = torch.linspace(0, 1, 400).reshape(20, 20)
    return lambda: [x[i // 20, i % 20].item() for i in range(steps)]


OTHERS = [
    Row("Q learning, 200 acts and 10 updates", q_learning, 200),
    Row("actor-critic, 3 episodes of 60 steps", actor_critic, 60),
    Row("actor-critic, 40 episodes of other lengths", other_episodes, 40),
    Row("equation's network, other points", equation, 40, lengths=True, compiles=False),
    Row("forces of 40 molecules", forces, 40, lengths=True, compiles=False),
    Row("norms read by hooks, 40 steps", hooked, 40, compiles=False),
    Row("reversed gradient, 40 batches", reversed_gradient, 40, lengths=True, compiles=False),
    Row("500 times float((x * i).sum())", scaled, 500, compiles=False),
    Row("300 elements read by item()", items, 300, compiles=False),
]
