"""Scripts of generative models, agents, graphs, series and other sciences."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from task import choose, draw, settle, task
from torch.distributions import Categorical, Normal
from training import steps


@task("VAE: reparametrization with given noise, KL divergence")
def vae():
    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.fc21, self.fc22 = nn.Linear(64, 32), nn.Linear(32, 8), nn.Linear(32, 8)
            self.fc3, self.fc4 = nn.Linear(8, 32), nn.Linear(32, 64)

        def forward(self, x):
            h = F.relu(self.fc1(x))
            mu, logvar = self.fc21(h), self.fc22(h)
            z = mu + draw(*mu.shape, seed=9) * torch.exp(0.5 * logvar)
            return torch.sigmoid(self.fc4(F.relu(self.fc3(z)))), mu, logvar

    model, x = settle(VAE()), draw(4, 64).sigmoid()

    def loss():
        made, mu, logvar = model(x)
        kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return F.binary_cross_entropy(made, x, reduction="sum") + kl

    yield from steps(model, loss, torch.optim.Adam(model.parameters(), lr=1e-3))


@task("VQ-VAE: nearest codes, straight-through gradients, EMA of codes")
def vqvae():
    enc, dec, codes = settle(nn.Linear(16, 8)), settle(nn.Linear(8, 16), 1), draw(12, 8, seed=2)
    model, x, sizes = nn.ModuleList([enc, dec]), draw(20, 16), torch.zeros(12)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(3):
        z = enc(x)
        near = torch.cdist(z, codes).argmin(1)
        found = codes[near]
        loss = F.mse_loss(dec(z + (found - z).detach()), x) + 0.25 * F.mse_loss(z, found.detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            hot = F.one_hot(near, 12).float()
            sizes.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            codes = codes * 0.9 + 0.1 * (hot.t() @ z) / hot.sum(0).clamp(min=1).unsqueeze(1)
        yield f"loss {step}", loss.item()
    yield "codes", codes
    yield "sizes", sizes


def adversaries(real, fake, noise, loss_d, loss_g, count=3, clip=None):
    d = torch.optim.Adam(real.parameters(), lr=2e-3, betas=(0.5, 0.999))
    g = torch.optim.Adam(fake.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for step in range(count):
        d.zero_grad()
        made = fake(noise(step))
        first = loss_d(made.detach())
        first.backward()
        d.step()
        if clip:
            for p in real.parameters():
                p.data.clamp_(-clip, clip)
        g.zero_grad()
        second = loss_g(made)
        second.backward()
        g.step()
        yield f"losses {step}", [first.item(), second.item()]


@task("DCGAN: transposed convolutions, two optimizers")
def dcgan():
    g = settle(nn.Sequential(
        nn.ConvTranspose2d(10, 16, 4, 1, 0, bias=False), nn.BatchNorm2d(16), nn.ReLU(True),
        nn.ConvTranspose2d(16, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
        nn.ConvTranspose2d(8, 3, 4, 2, 1, bias=False), nn.Tanh(),
    ))  # fmt: skip
    d = settle(nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(8, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(16, 1, 4, 1, 0, bias=False), nn.Sigmoid(), nn.Flatten(0),
    ))  # fmt: skip
    x, bce = draw(8, 3, 16, 16).tanh(), nn.BCELoss()
    yes, no = torch.ones(8), torch.zeros(8)
    yield from adversaries(
        d, g, lambda k: draw(8, 10, 1, 1, seed=k), lambda m: bce(d(x), yes) + bce(d(m), no),
        lambda m: bce(d(m), yes),
    )  # fmt: skip


@task("WGAN with clipped weights; WGAN-GP's penalty by double backward")
def wgan():
    g = settle(nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 10)))
    d = settle(nn.Sequential(nn.Linear(10, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1)))
    x = draw(8, 10)
    yield from adversaries(
        d, g, lambda k: draw(8, 6, seed=k), lambda m: d(m).mean() - d(x).mean(),
        lambda m: -d(m).mean(), clip=0.1,
    )  # fmt: skip

    def penalty(made):
        mixed = (0.3 * x + 0.7 * made).requires_grad_(True)
        out = d(mixed)
        grads = torch.autograd.grad(out, mixed, torch.ones_like(out), create_graph=True)[0]
        return ((grads.norm(2, dim=1) - 1) ** 2).mean()

    losses = adversaries(
        d, g, lambda k: draw(8, 6, seed=k), lambda m: d(m).mean() - d(x).mean() + 10 * penalty(m),
        lambda m: -d(m).mean(),
    )  # fmt: skip
    for name, value in losses:
        yield f"penalized {name}", value


@task("pix2pix and CycleGAN: instance norms, cycle losses, a patch discriminator, LSGAN")
def cyclegan():
    def generator():
        return nn.Sequential(
            nn.ReflectionPad2d(1), nn.Conv2d(3, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(True),
            nn.Conv2d(8, 3, 3, padding=1), nn.Tanh(),
        )  # fmt: skip

    there, back = settle(generator()), settle(generator(), 1)
    patch = settle(nn.Sequential(
        nn.Conv2d(3, 8, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(8, 1, 4, 1, 1)
    ))  # fmt: skip
    both = nn.ModuleList([there, back])
    a, b = draw(1, 3, 16, 16).tanh(), draw(1, 3, 16, 16, seed=1).tanh()

    def loss():
        fake = there(a)
        judged = patch(fake)
        gan = F.mse_loss(judged, torch.tensor(1.0).expand_as(judged))
        cycle = F.l1_loss(back(fake), a) + F.l1_loss(there(back(b)), b)
        return gan + 10 * cycle + 5 * F.l1_loss(there(b), b)

    yield from steps(both, loss, torch.optim.Adam(both.parameters(), 2e-4, betas=(0.5, 0.999)))


@task("DDPM: a beta schedule, noise prediction, ancestral sampling with given noise")
def ddpm():
    betas = torch.linspace(1e-4, 0.02, 50)
    kept = torch.cumprod(1 - betas, 0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.time = nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 8))
            self.a, self.b = nn.Conv2d(1, 8, 3, padding=1), nn.Conv2d(8, 1, 3, padding=1)
            self.n = nn.GroupNorm(2, 8)

        def forward(self, x, t):
            half = torch.exp(torch.arange(8) * -(math.log(10000) / 7))
            turn = t.float()[:, None] * half[None]
            e = self.time(torch.cat((turn.sin(), turn.cos()), -1))
            return self.b(F.silu(self.n(self.a(x)) + e[:, :, None, None]))

    model, x, t, noise = (
        settle(Net()),
        draw(4, 1, 12, 12),
        choose(50, 4),
        draw(4, 1, 12, 12, seed=5),
    )
    share = kept.gather(0, t).view(-1, 1, 1, 1)
    noisy = share.sqrt() * x + (1 - share).sqrt() * noise
    optimizer = torch.optim.Adam(model.parameters(), 2e-3)
    yield from steps(model, lambda: F.mse_loss(model(noisy, t), noise), optimizer)
    made = draw(2, 1, 12, 12)
    with torch.no_grad():
        for k in reversed(range(45, 50)):
            when = torch.full((2,), k, dtype=torch.long)
            made = (made - betas[k] / (1 - kept[k]).sqrt() * model(made, when)) / (
                1 - betas[k]
            ).sqrt()
            made = made + betas[k].sqrt() * draw(2, 1, 12, 12, seed=k)
    yield "made", made


@task("RealNVP and PixelCNN: couplings with log-determinants, masked convolutions")
def flows():
    nets = settle(
        nn.ModuleList(
            nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 4)) for _ in range(3)
        )
    )
    x = draw(16, 4)

    def likelihood():
        z, total = x, 0
        for k, net in enumerate(nets):
            a, b = z.chunk(2, 1) if k % 2 == 0 else reversed(z.chunk(2, 1))
            scale, shift = net(a).chunk(2, 1)
            b = b * torch.tanh(scale).exp() + shift
            z, total = torch.cat((a, b), 1), total + torch.tanh(scale).sum(1)
        return -(Normal(0.0, 1.0).log_prob(z).sum(1) + total).mean()

    yield from steps(nets, likelihood, torch.optim.Adam(nets.parameters(), 1e-3))

    class Masked(nn.Conv2d):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.register_buffer("mask", torch.ones_like(self.weight))
            self.mask[:, :, 2, 2:] = 0
            self.mask[:, :, 3:] = 0

        def forward(self, x):
            self.weight.data *= self.mask
            return super().forward(x)

    pixel = settle(nn.Sequential(Masked(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 1)))
    image = choose(4, 2, 8, 8)
    loss = lambda: F.cross_entropy(pixel(image.unsqueeze(1).float()), image)  # noqa: E731
    for name, value in steps(pixel, loss, torch.optim.Adam(pixel.parameters(), 1e-3)):
        yield f"pixels {name}", value


@task("NeRF: positional encoding, rays, volume rendering")
def nerf():
    net = settle(nn.Sequential(nn.Linear(39, 32), nn.ReLU(), nn.Linear(32, 4)))
    origins, ways, truth = (
        draw(8, 3),
        F.normalize(draw(8, 3, seed=1), dim=-1),
        draw(8, 3, seed=2).sigmoid(),
    )

    def encoded(x):
        waves = [f(2.0**k * x) for k in range(6) for f in (torch.sin, torch.cos)]
        return torch.cat([x, *waves], -1)

    def loss():
        z = torch.linspace(0.5, 3, 12)
        points = origins[:, None] + ways[:, None] * z[:, None]
        raw = net(encoded(points))
        gaps = torch.cat([z[1:] - z[:-1], torch.tensor([1e10])])
        alpha = 1 - torch.exp(-F.relu(raw[..., 3]) * gaps)
        ahead = torch.cumprod(torch.cat([torch.ones(8, 1), 1 - alpha + 1e-10], -1), -1)[:, :-1]
        return F.mse_loss(((alpha * ahead)[..., None] * raw[..., :3].sigmoid()).sum(-2), truth)

    yield from steps(net, loss, torch.optim.Adam(net.parameters(), 5e-4))


@task("REINFORCE and actor-critic on given episodes")
def policies():
    net = settle(
        nn.ModuleDict({"a": nn.Linear(4, 16), "p": nn.Linear(16, 2), "v": nn.Linear(16, 1)})
    )
    seen, acts = draw(10, 4), choose(2, 10)
    rewards, returns, total = [1.0] * 9 + [0.0], [], 0
    for r in rewards[::-1]:
        total = r + 0.99 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)

    def loss():
        logs, values = [], []
        for state, act in zip(seen, acts):
            h = F.relu(net["a"](state))
            logs.append(Categorical(F.softmax(net["p"](h), dim=-1)).log_prob(act))
            values.append(net["v"](h))
        pairs = zip(logs, values, returns)
        policy, value = [], []
        for log, v, r in pairs:
            policy.append(-log * (r - v.item()))
            value.append(F.smooth_l1_loss(v, r.reshape(1)))
        return torch.stack(policy).sum() + torch.stack(value).sum()

    yield from steps(net, loss, torch.optim.Adam(net.parameters(), lr=3e-2))


@task("DQN: a replay buffer, a target network, Huber loss, clipped values")
def dqn():
    net = settle(nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)))
    target = copy.deepcopy(net)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, amsgrad=True)
    for step in range(3):
        s, n, a = draw(16, 4, seed=step), draw(16, 4, seed=step + 9), choose(2, 16, 1, seed=step)
        alive = draw(16, seed=step) > -1
        later = torch.zeros(16)
        with torch.no_grad():
            later[alive] = target(n[alive]).max(1).values
        loss = F.smooth_l1_loss(net(s).gather(1, a), (later * 0.99 + 1.0).unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(net.parameters(), 100)
        optimizer.step()
        state = target.state_dict()
        for key, value in net.state_dict().items():
            state[key] = value * 0.005 + state[key] * 0.995
        target.load_state_dict(state)
        yield f"loss {step}", loss.item()
    yield "target", target[0].weight


@task("PPO and SAC in one file: clipped ratios, GAE, squashed Gaussians")
def ppo():
    net = settle(nn.ModuleDict({
        "v": nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)),
        "p": nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2)),
    }))  # fmt: skip
    log_std = nn.Parameter(torch.zeros(1, 2))
    seen, acts, rewards = draw(12, 4), draw(12, 2, seed=1), draw(12, seed=2)
    with torch.no_grad():
        old = Normal(net["p"](seen), log_std.exp()).log_prob(acts).sum(1)
        values, gains, last = net["v"](seen).flatten(), torch.zeros(12), 0.0
        for t in reversed(range(11)):
            delta = rewards[t] + 0.99 * values[t + 1] - values[t]
            gains[t] = last = delta + 0.99 * 0.95 * last

    def loss():
        policy = Normal(net["p"](seen), log_std.exp().expand(12, 2))
        ratio = (policy.log_prob(acts).sum(1) - old).exp()
        gain = (gains - gains.mean()) / (gains.std() + 1e-8)
        clipped = torch.max(-gain * ratio, -gain * torch.clamp(ratio, 0.8, 1.2)).mean()
        value = 0.5 * ((net["v"](seen).flatten() - (gains + values)) ** 2).mean()
        return clipped + 0.5 * value - 0.01 * policy.entropy().sum(1).mean()

    optimizer = torch.optim.Adam([*net.parameters(), log_std], lr=3e-3, eps=1e-5)
    yield from steps(net, loss, optimizer)
    mean, spread = net["p"](seen), (log_std.clamp(-5, 2)).exp()
    raw = mean + spread * draw(12, 2, seed=7)
    act = torch.tanh(raw)
    log = Normal(mean, spread).log_prob(raw) - torch.log(1 - act.pow(2) + 1e-6)
    yield "squashed", log.sum(1, keepdim=True)


def graph():
    edges = choose(14, 2, 40)
    adjacency = torch.zeros(14, 14)
    adjacency[edges[0], edges[1]] = 1.0
    adjacency = ((adjacency + adjacency.t()) > 0).float() + torch.eye(14)
    return draw(14, 8), choose(3, 14), adjacency


@task("GCN and GAT of one file on a dense adjacency")
def graphs():
    x, y, adjacency = graph()
    degree = adjacency.sum(1).pow(-0.5)
    normal = degree[:, None] * adjacency * degree
    w1, w2 = nn.Linear(8, 16, bias=False), nn.Linear(16, 3)
    gcn = settle(nn.ModuleList([w1, w2]))
    loss = lambda: F.cross_entropy((normal @ w2(F.relu(normal @ w1(x))))[:10], y[:10])  # noqa: E731
    yield from steps(gcn, loss, torch.optim.Adam(gcn.parameters(), lr=0.01, weight_decay=5e-4))

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.w, self.a = nn.Linear(8, 24, bias=False), nn.Parameter(torch.zeros(4, 12, 1))
            self.out = nn.Linear(24, 3)

        def forward(self, x):
            h = self.w(x).view(14, 4, 6).permute(1, 0, 2)
            scores = h @ self.a[:, :6] + (h @ self.a[:, 6:]).mT
            scores = F.leaky_relu(scores, 0.2).masked_fill(adjacency == 0, -9e15)
            return self.out(F.elu(scores.softmax(-1) @ h).permute(1, 0, 2).flatten(1))

    gat = settle(Layer())
    loss = lambda: F.nll_loss(F.log_softmax(gat(x), 1), y)  # noqa: E731
    for name, value in steps(gat, loss, torch.optim.Adam(gat.parameters(), lr=0.005)):
        yield f"GAT {name}", value


@task("message passing by index_add and scatter_reduce; node2vec's walks")
def messages():
    x, y, _ = graph()
    source, sink = choose(14, 2, 40)
    net = settle(nn.ModuleList([nn.Linear(16, 8), nn.Linear(16, 3)]))

    def loss():
        sent = F.relu(net[0](torch.cat([x[source], x[sink]], 1)))
        total = torch.zeros(14, 8).index_add_(0, sink, sent)
        index = sink[:, None].expand(-1, 8)
        most = torch.zeros(14, 8).scatter_reduce(0, index, sent, "amax", include_self=True)
        return F.cross_entropy(net[1](torch.cat([total, most], 1)), y)

    yield from steps(net, loss, torch.optim.Adam(net.parameters(), lr=0.01))
    emb = settle(nn.Embedding(14, 6))
    walks, wrong = choose(14, 5, 4), choose(14, 5, 4, seed=8)

    def pairs(w):
        return (emb(w[:, :1]) * emb(w[:, 1:])).sum(-1).view(-1)

    def loss_of_walks():
        near, far = pairs(walks).sigmoid(), pairs(wrong).sigmoid()
        return -(near + 1e-15).log().mean() - (1 - far + 1e-15).log().mean()

    for name, value in steps(emb, loss_of_walks, torch.optim.Adam(emb.parameters(), lr=0.01)):
        yield f"walks {name}", value


@task("time series: sines by stacked LSTM cells and LBFGS")
def sines():
    class Sequence(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.out = nn.LSTMCell(1, 12), nn.LSTMCell(12, 12), nn.Linear(12, 1)

        def forward(self, x, future=0):
            zeros = torch.zeros(x.size(0), 12, dtype=torch.double)
            h1 = c1 = h2 = c2 = zeros
            made = []
            for part in x.split(1, dim=1):
                h1, c1 = self.a(part, (h1, c1))
                h2, c2 = self.b(h1, (h2, c2))
                made.append(self.out(h2))
            for _ in range(future):
                h1, c1 = self.a(made[-1], (h1, c1))
                h2, c2 = self.b(h1, (h2, c2))
                made.append(self.out(h2))
            return torch.cat(made, dim=1)

    model = settle(Sequence()).double()
    wave = torch.sin(torch.arange(20).double() / 3 + torch.arange(3).double().view(3, 1))
    optimizer, losses = torch.optim.LBFGS(model.parameters(), lr=0.8, max_iter=4), []

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(wave[:, :-1]), wave[:, 1:])
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
    yield "losses", losses
    with torch.no_grad():
        yield "future", model(wave[:, :5], future=4)


@task("time series: TCN with weight norms, N-BEATS, DLinear")
def series():
    from torch.nn.utils.parametrizations import weight_norm

    class Causal(nn.Module):
        def __init__(self, a, b, reach):
            super().__init__()
            self.conv = weight_norm(nn.Conv1d(a, b, 2, dilation=reach, padding=reach))
            self.short, self.reach = nn.Conv1d(a, b, 1), reach

        def forward(self, x):
            return F.relu(F.relu(self.conv(x)[:, :, : -self.reach]) + self.short(x))

    tcn = settle(nn.Sequential(Causal(1, 8, 1), Causal(8, 8, 2), Causal(8, 1, 4)))
    x, y = draw(4, 1, 24), draw(4, 1, 24, seed=1)
    yield from steps(tcn, lambda: F.mse_loss(tcn(x), y), torch.optim.Adam(tcn.parameters(), 1e-3))
    blocks = settle(
        nn.ModuleList(
            nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 30)) for _ in range(3)
        )
    )

    def beats():
        left, total = x[:, 0], 0
        for block in blocks:
            back, ahead = block(left).split((24, 6), dim=1)
            left, total = left - back, total + ahead
        return F.l1_loss(total, y[:, 0, :6])

    for name, value in steps(blocks, beats, torch.optim.Adam(blocks.parameters(), 1e-3)):
        yield f"N-BEATS {name}", value
    trend = F.avg_pool1d(F.pad(x, (12, 12), mode="replicate"), 25, 1)
    linear = settle(nn.ModuleList([nn.Linear(24, 6), nn.Linear(24, 6)]))
    yield "DLinear", linear[0](trend) + linear[1](x - trend)


@task("physics: a PINN of Burgers' equation, a neural ODE by Runge-Kutta, a Hamiltonian")
def physics():
    net = settle(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)))
    points = draw(12, 2).requires_grad_()

    def residual():
        u = net(points)
        du = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
        dxx = torch.autograd.grad(du[:, 0].sum(), points, create_graph=True)[0][:, 0]
        return (du[:, 1] + u[:, 0] * du[:, 0] - 0.01 * dxx).square().mean() + u[:3].square().mean()

    yield from steps(net, residual, torch.optim.Adam(net.parameters(), 1e-2))
    field = settle(nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 2)))

    def path():
        z, h, out = draw(6, 2), 0.2, []
        for _ in range(4):
            a = field(z)
            b = field(z + h / 2 * a)
            c = field(z + h / 2 * b)
            z = z + h / 6 * (a + 2 * b + 2 * c + field(z + h * c))
            out.append(z)
        return torch.stack(out).square().mean()

    for name, value in steps(field, path, torch.optim.Adam(field.parameters(), 1e-2)):
        yield f"ODE {name}", value
    energy = settle(nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 1)))
    q = draw(5, 4).requires_grad_()
    slope = torch.autograd.grad(energy(q).sum(), q, create_graph=True)[0]
    F.mse_loss(slope, draw(5, 4, seed=2)).backward()
    yield "Hamiltonian", energy[0].weight.grad


@task("recommenders: factorization, NCF, DeepFM, SASRec")
def recommenders():
    users, items, rated = choose(20, 32), choose(30, 32, seed=1), draw(32)
    net = settle(nn.ModuleDict({
        "u": nn.Embedding(20, 8), "i": nn.Embedding(30, 8), "ub": nn.Embedding(20, 1),
        "mlp": nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)),
    }))  # fmt: skip

    def loss():
        u, i = net["u"](users), net["i"](items)
        fm = (u * i).sum(1) + net["ub"](users).squeeze(1)
        return F.mse_loss(fm + net["mlp"](torch.cat((u, i), 1)).squeeze(1), rated)

    yield from steps(net, loss, torch.optim.Adagrad(net.parameters(), lr=0.05))
    fields = settle(nn.Embedding(40, 6))
    x = fields(choose(40, 8, 5))
    yield "FM", 0.5 * (x.sum(1).pow(2) - x.pow(2).sum(1)).sum(1)
    seq = settle(nn.MultiheadAttention(8, 2, batch_first=True))
    h = net["i"](choose(30, 3, 6)).detach()
    mask = ~torch.tril(torch.ones(6, 6, dtype=torch.bool))
    yield "SASRec", seq(h, h, h, attn_mask=mask)[0]


@task("distillation, pruning, EMA, federated averages, MAML with inner steps")
def training_tricks():
    from torch.nn.utils import prune

    teacher, student = settle(nn.Linear(8, 5)), settle(nn.Linear(8, 5), 1)
    x, y = draw(16, 8), choose(5, 16)

    def distilled():
        soft = F.kl_div(
            F.log_softmax(student(x) / 2, 1),
            F.softmax(teacher(x).detach() / 2, 1),
            reduction="batchmean",
        )
        return soft * 4 + 0.5 * F.cross_entropy(student(x), y)

    yield from steps(student, distilled, torch.optim.SGD(student.parameters(), 0.1))
    average = torch.optim.swa_utils.AveragedModel(student)
    average.update_parameters(teacher)
    yield "average", average.module.weight
    prune.l1_unstructured(student, "weight", amount=0.4)
    yield "zeros", int((student.weight == 0).sum())
    prune.remove(student, "weight")
    mean = {k: (teacher.state_dict()[k] + v) / 2 for k, v in student.state_dict().items()}
    yield "federated", mean["weight"]
    net = settle(nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 5)))

    def adapted():
        fast, total = dict(net.named_parameters()), 0
        for _ in range(2):
            inner = F.cross_entropy(torch.func.functional_call(net, fast, (x[:8],)), y[:8])
            grads = torch.autograd.grad(inner, tuple(fast.values()), create_graph=True)
            fast = {k: v - 0.1 * g for (k, v), g in zip(fast.items(), grads)}
            total = total + F.cross_entropy(torch.func.functional_call(net, fast, (x[8:],)), y[8:])
        return total

    for name, value in steps(net, adapted, torch.optim.Adam(net.parameters(), 1e-2)):
        yield f"MAML {name}", value


@task("the first tutorials: polynomials by autograd, custom functions, nn and optim")
def tutorials():
    x = torch.linspace(-math.pi, math.pi, 200)
    y = torch.sin(x)
    a, b, c, d = (torch.tensor(v, requires_grad=True) for v in (0.1, 0.2, -0.1, 0.05))
    for step in range(4):
        loss = (a + b * x + c * x**2 + d * x**3 - y).pow(2).sum()
        loss.backward()
        with torch.no_grad():
            for p in (a, b, c, d):
                p -= 1e-6 * p.grad
                p.grad = None
        yield f"by hand {step}", loss.item()

    class Legendre(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 0.5 * (5 * x**3 - 3 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 1.5 * (5 * x**2 - 1)

    p = torch.tensor(0.3, requires_grad=True)
    (Legendre.apply(p * x) - y).pow(2).sum().backward()
    yield "Legendre", p.grad
    model = settle(nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1)))
    powers = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    yield from steps(model, lambda: F.mse_loss(model(powers), y, reduction="sum"), optimizer)
