"""Scripts of agents in one file each, with the networks and updates of CleanRL's algorithms."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from task import choose, draw, settle, task
from torch.distributions import Categorical, Normal
from training import steps


def frames(count=8, seed=0):
    """Stacks of four grey frames, as a vector of Atari's environments gives them."""
    return choose(256, count, 4, 84, 84, seed=seed).to(torch.uint8)


def nature():
    return [
        nn.Conv2d(4, 32, 8, stride=4), nn.ReLU(), nn.Conv2d(32, 64, 4, stride=2), nn.ReLU(),
        nn.Conv2d(64, 64, 3, stride=1), nn.ReLU(), nn.Flatten(),
    ]  # fmt: skip


class Recurrent(nn.Module):
    """The network of Atari with an LSTM whose states are cleared where an episode ends."""

    def __init__(self):
        super().__init__()
        self.network = nn.Sequential(*nature(), nn.Linear(64 * 7 * 7, 64), nn.ReLU())
        self.lstm = nn.LSTM(64, 16)
        self.actor, self.critic = nn.Linear(16, 6), nn.Linear(16, 1)

    def states(self, x, state, done):
        hidden = self.network(x / 255.0).reshape(-1, state[0].shape[1], 64)
        done = done.reshape(-1, state[0].shape[1])
        seen = []
        for h, d in zip(hidden, done):
            kept = (1.0 - d).view(1, -1, 1)
            h, state = self.lstm(h.unsqueeze(0), (kept * state[0], kept * state[1]))
            seen.append(h)
        return torch.flatten(torch.cat(seen), 0, 1), state


@task("PPO on Atari's frames with an LSTM, annealed rates, clipped values")
def recurrent():
    agent = settle(Recurrent())
    x, done = frames(), (choose(4, 8) == 0).float()
    start = torch.zeros(1, 2, 16), torch.zeros(1, 2, 16)
    actions, gains, old = choose(6, 8), draw(8), draw(8, scale=0.1) - math.log(6)
    returns, values = draw(8, seed=1), draw(8, seed=2)
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    for update in range(3):
        optimizer.param_groups[0]["lr"] = (1.0 - update / 3) * 2.5e-4
        hidden, _ = agent.states(x, start, done)
        policy = Categorical(logits=agent.actor(hidden))
        ratio = (policy.log_prob(actions) - old).exp()
        with torch.no_grad():
            kl = ((ratio - 1) - ratio.log()).mean()
        surrogate = torch.max(-gains * ratio, -gains * ratio.clamp(0.9, 1.1)).mean()
        value = agent.critic(hidden).view(-1)
        near = values + torch.clamp(value - values, -0.1, 0.1)
        worse = torch.max((value - returns) ** 2, (near - returns) ** 2)
        loss = surrogate - 0.01 * policy.entropy().mean() + 0.5 * 0.5 * worse.mean()
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
        optimizer.step()
        yield f"update {update}", [loss.item(), kl.item(), norm.item()]


@task("C51: a distribution of returns is projected on fixed atoms")
def categorical():
    count, atoms = 51, torch.linspace(-10, 10, steps=51)
    net = settle(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2 * count)))
    target = copy.deepcopy(net)

    def probabilities(which, x):
        return torch.softmax(which(x).view(len(x), 2, count), dim=2)

    x, later, actions = draw(16, 4), draw(16, 4, seed=1), choose(2, 16)
    rewards, done = draw(16, 1, seed=2), (choose(5, 16, 1) == 0).float()
    with torch.no_grad():
        ahead = probabilities(target, later)
        best = ahead[torch.arange(16), (ahead * atoms).sum(2).argmax(1)]
        places = ((rewards + 0.99 * atoms * (1 - done)).clamp(-10, 10) + 10) / (20 / (count - 1))
        low, high = places.floor(), places.ceil()
        share_low, share_high = (
            (high + (low == high).float() - places) * best,
            (places - low) * best,
        )
        wanted = torch.zeros_like(ahead[:, 0])
        for i in range(16):
            wanted[i].index_add_(0, low[i].long(), share_low[i])
            wanted[i].index_add_(0, high[i].long(), share_high[i])
    yield "projected", wanted

    def loss():
        found = probabilities(net, x)[torch.arange(16), actions]
        return -(wanted * found.clamp(1e-5, 1 - 1e-5).log()).sum(-1).mean()

    yield from steps(net, loss, torch.optim.Adam(net.parameters(), lr=2.5e-4, eps=0.01 / 16))


class Noisy(nn.Module):
    """A linear layer whose weights have learned noise, by given factors of its rows and columns."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight, self.bias = (
            nn.Parameter(torch.empty(outputs, inputs)),
            nn.Parameter(torch.empty(outputs)),
        )
        self.spread = nn.Parameter(torch.empty(outputs, inputs))
        self.register_buffer("noise", torch.empty(outputs, inputs))

    def reset_noise(self, seed):
        rows, columns = (draw(n, seed=seed + n) for n in self.noise.shape)
        rows, columns = (v.sign() * v.abs().sqrt() for v in (rows, columns))
        self.noise.copy_(rows.outer(columns))

    def forward(self, x):
        weight = self.weight + self.spread * self.noise if self.training else self.weight
        return F.linear(x, weight, self.bias)


@task("Rainbow: noisy dueling networks, returns of n steps, priorities")
def rainbow():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU())
            self.value, self.gain = Noisy(32, 1), Noisy(32, 3)

        def forward(self, x):
            hidden = self.body(x)
            gain = self.gain(hidden)
            return self.value(hidden) + gain - gain.mean(1, keepdim=True)

    net = settle(Net())
    for layer in (net.value, net.gain):
        layer.reset_noise(1)
    target = copy.deepcopy(net)
    x, rewards, later, actions = (
        draw(16, 6),
        draw(16, 3, seed=1),
        draw(16, 6, seed=2),
        choose(3, 16),
    )
    priorities = draw(16, seed=3).abs() + 0.1
    weights = (16 * priorities / priorities.sum()) ** -0.4
    weights = weights / weights.max()
    discounts = 0.99 ** torch.arange(3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for step in range(3):
        with torch.no_grad():
            best = net(later).argmax(1, keepdim=True)
            wanted = (rewards * discounts).sum(1) + 0.99**3 * target(later).gather(1, best)[:, 0]
        found = net(x).gather(1, actions[:, None]).squeeze(1)
        apart = F.smooth_l1_loss(found, wanted, reduction="none")
        loss = (weights * apart).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        priorities = apart.detach().abs() + 1e-6
        yield f"step {step}", [loss.item(), priorities]
    yield "evaluated", net.eval()(x)


def q_network():
    return nn.Sequential(nn.Linear(5, 32), nn.ReLU(), nn.Linear(32, 1))


@task("DDPG and TD3: delayed policies, smoothed targets, slow copies")
def deterministic():
    actor = settle(nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 2), nn.Tanh()))
    critics = [settle(q_network(), seed=k) for k in (1, 2)]
    slow_actor, slow = copy.deepcopy(actor), copy.deepcopy(critics)
    of_critics = torch.optim.Adam([p for c in critics for p in c.parameters()], lr=3e-4)
    of_actor = torch.optim.Adam(list(actor.parameters()), lr=3e-4)
    for step in range(4):
        x, a, later = (
            draw(12, 3, seed=step),
            draw(12, 2, seed=step + 9).tanh(),
            draw(12, 3, seed=77),
        )
        with torch.no_grad():
            noise = (draw(12, 2, seed=step + 31) * 0.2).clamp(-0.5, 0.5)
            ahead = torch.cat([later, (slow_actor(later) + noise).clamp(-1, 1)], 1)
            wanted = 1 + 0.99 * torch.min(*[c(ahead).view(-1) for c in slow])
        loss = sum(F.mse_loss(c(torch.cat([x, a], 1)).view(-1), wanted) for c in critics)
        of_critics.zero_grad()
        loss.backward()
        of_critics.step()
        yield f"critics {step}", loss.item()
        if step % 2 == 0:
            gain = -critics[0](torch.cat([x, actor(x)], 1)).mean()
            of_actor.zero_grad()
            gain.backward()
            of_actor.step()
            for whole, copied in ((actor, slow_actor), *zip(critics, slow)):
                for p, q in zip(whole.parameters(), copied.parameters()):
                    q.data.copy_(0.005 * p.data + 0.995 * q.data)
            yield f"actor {step}", gain.item()
    yield "slow", slow_actor[0].weight


@task("SAC: squashed actions, two critics, a temperature that is learned")
def soft():
    trunk = settle(nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 4)))
    critics = [settle(q_network(), seed=k) for k in (1, 2)]
    slow = copy.deepcopy(critics)
    temperature = torch.zeros(1, requires_grad=True)
    scale, shift = torch.tensor([2.0, 1.0]), torch.tensor([0.0, 0.5])
    of_q = torch.optim.Adam([p for c in critics for p in c.parameters()], lr=1e-3)
    of_policy = torch.optim.Adam(trunk.parameters(), lr=3e-4)
    of_temperature = torch.optim.Adam([temperature], lr=1e-3)

    def act(x, seed):
        mean, spread = trunk(x).chunk(2, dim=-1)
        spread = -5 + 0.5 * 7 * (torch.tanh(spread) + 1)
        normal = Normal(mean, spread.exp())
        raw = mean + spread.exp() * draw(len(x), 2, seed=seed)
        y = torch.tanh(raw)
        log = normal.log_prob(raw) - torch.log(scale * (1 - y.pow(2)) + 1e-6)
        return y * scale + shift, log.sum(1, keepdim=True)

    for step in range(3):
        x, a, later = draw(12, 3, seed=step), draw(12, 2, seed=step + 9), draw(12, 3, seed=77)
        alpha = temperature.exp().item()
        with torch.no_grad():
            ahead, log = act(later, step + 50)
            least = torch.min(*[c(torch.cat([later, ahead], 1)) for c in slow]) - alpha * log
            wanted = 1.0 + 0.99 * least.view(-1)
        loss = sum(F.mse_loss(c(torch.cat([x, a], 1)).view(-1), wanted) for c in critics)
        of_q.zero_grad()
        loss.backward()
        of_q.step()
        chosen, log = act(x, step + 60)
        least = torch.min(*[c(torch.cat([x, chosen], 1)) for c in critics])
        policy = (alpha * log - least).mean()
        of_policy.zero_grad()
        policy.backward()
        of_policy.step()
        warmth = (-temperature.exp() * (log.detach() - 2.0)).mean()
        of_temperature.zero_grad()
        warmth.backward()
        of_temperature.step()
        yield f"step {step}", [loss.item(), policy.item(), temperature.item()]


class Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return x + self.two(F.relu(self.one(F.relu(x))))


@task("PPO on Procgen's pictures by IMPALA's network; random network distillation; PQN")
def others():
    parts, channels = [], 3
    for wide in (8, 16):
        parts += [
            nn.Conv2d(channels, wide, 3, padding=1), nn.MaxPool2d(3, stride=2, padding=1),
            Residual(wide), Residual(wide),
        ]  # fmt: skip
        channels = wide
    impala = settle(
        nn.Sequential(*parts, nn.Flatten(), nn.ReLU(), nn.Linear(16 * 8 * 8, 32), nn.ReLU())
    )
    pictures = choose(256, 4, 32, 32, 3)
    yield from steps(
        impala,
        lambda: impala(pictures.permute(0, 3, 1, 2) / 255.0).square().mean(),
        torch.optim.Adam(impala.parameters(), lr=5e-4, eps=1e-5),
    )
    made, known = (settle(nn.Sequential(*nature(), nn.Linear(64 * 49, 16)), seed=k) for k in (1, 2))
    for p in known.parameters():
        p.requires_grad = False
    x = frames(4).float()
    x = ((x - x.mean((0, 2, 3), keepdim=True)) / x.std((0, 2, 3), keepdim=True)).clip(-5, 5)
    mask = (choose(4, 4) == 0).float()
    apart = F.mse_loss(made(x), known(x).detach(), reduction="none").mean(-1)
    loss = (apart * mask).sum() / torch.max(mask.sum(), torch.tensor([1.0]))
    loss.backward()
    yield "curiosity", [apart, loss.item(), made[0].weight.grad]
    net = settle(nn.Sequential(nn.Linear(4, 32), nn.LayerNorm(32), nn.ReLU(), nn.Linear(32, 2)))
    seen, rewards, done = draw(6, 3, 4), draw(6, 3, seed=1), (choose(5, 6, 3) == 0).float()
    with torch.no_grad():
        best, returns = net(seen).max(-1).values, torch.zeros(6, 3)
        returns[5] = rewards[5] + 0.99 * best[5] * (1 - done[5])
        for t in reversed(range(5)):
            mixed = 0.65 * returns[t + 1] + 0.35 * best[t + 1]
            returns[t] = rewards[t] + 0.99 * mixed * (1 - done[t])
    yield "lambda returns", returns
    optimizer = torch.optim.RAdam(net.parameters(), lr=2.5e-4)
    for _ in range(7):
        loss = F.mse_loss(net(seen.flatten(0, 1))[:, 0], returns.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 10.0)
        optimizer.step()
    yield "PQN", [loss.item(), net[0].weight]
