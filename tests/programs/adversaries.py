"""Two nets against each other."""

from __future__ import annotations

import itertools

from . import program


@program
def gan_with_a_shared_fake(torch, draw):
    """The usual loop: the discriminator sees `fake.detach()`, the generator `fake`."""
    F = torch.nn.functional
    G = draw.mlp(3, 8, 2, act="LeakyReLU")
    D = draw.mlp(2, 8, 1, act="LeakyReLU")
    opt_g = torch.optim.Adam(G.parameters(), lr=0.01, betas=(0.5, 0.999))
    opt_d = torch.optim.Adam(D.parameters(), lr=0.01, betas=(0.5, 0.999))
    real_label, fake_label = torch.ones(6, 1), torch.zeros(6, 1)
    while True:
        D.zero_grad()
        err_real = F.binary_cross_entropy_with_logits(D(draw(6, 2)), real_label)
        err_real.backward()
        fake = G(draw(6, 3))
        err_fake = F.binary_cross_entropy_with_logits(D(fake.detach()), fake_label)
        err_fake.backward()
        opt_d.step()
        G.zero_grad()
        err_g = F.binary_cross_entropy_with_logits(D(fake), real_label)
        err_g.backward()
        opt_g.step()
        yield err_real + err_fake, err_g, G, D


@program
def detached_value_used_twice(torch, draw):
    w, v = draw(3, requires_grad=True), draw(3, requires_grad=True)
    optimizer = torch.optim.SGD([v], lr=0.1)
    while True:
        y = w.exp()
        (v * y.detach()).sum().backward()
        optimizer.step()
        y.sum().backward()
        yield v, w, y


@program
def dcgan(torch, draw):
    nn = torch.nn
    G = nn.Sequential(
        nn.ConvTranspose2d(4, 4, 2, 1, 0, bias=False),
        nn.BatchNorm2d(4),
        nn.ReLU(True),
        nn.ConvTranspose2d(4, 1, 4, 2, 1, bias=False),
        nn.Tanh(),
    )
    D = nn.Sequential(
        nn.Conv2d(1, 4, 4, 2, 1, bias=False),
        nn.BatchNorm2d(4),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(4, 1, 2, 1, 0, bias=False),
        nn.Sigmoid(),
    )
    draw.into(G), draw.into(D)
    criterion = nn.BCELoss()
    opt_d = torch.optim.Adam(D.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam(G.parameters(), lr=2e-3, betas=(0.5, 0.999))
    while True:
        D.zero_grad()
        label = torch.full((3,), 1.0)
        output = D(draw(3, 1, 4, 4)).view(-1)
        err_real = criterion(output, label)
        err_real.backward()
        fake = G(draw(3, 4, 1, 1))
        label.fill_(0.0)
        err_fake = criterion(D(fake.detach()).view(-1), label)
        err_fake.backward()
        err_d = err_real + err_fake
        opt_d.step()
        G.zero_grad()
        label.fill_(1.0)
        err_g = criterion(D(fake).view(-1), label)
        err_g.backward()
        opt_g.step()
        yield err_d.item(), err_g.item(), fake, G, D


@program
def wasserstein_with_clipped_weights(torch, draw):
    G, D = draw.mlp(2, 6, 2, act="LeakyReLU"), draw.mlp(2, 6, 1, act="LeakyReLU")
    opt_g = torch.optim.RMSprop(G.parameters(), lr=0.01)
    opt_d = torch.optim.RMSprop(D.parameters(), lr=0.01)
    while True:
        for _ in range(2):
            with torch.no_grad():
                fake = G(draw(5, 2))
            opt_d.zero_grad()
            loss_d = D(fake).mean() - D(draw(5, 2)).mean()
            loss_d.backward()
            opt_d.step()
            for p in D.parameters():
                p.data.clamp_(-0.3, 0.3)
        opt_g.zero_grad()
        loss_g = -D(G(draw(5, 2))).mean()
        loss_g.backward()
        opt_g.step()
        yield loss_d, loss_g, G, D


@program
def wasserstein_with_gradient_penalty(torch, draw):
    G, D = draw.mlp(2, 6, 2, act="LeakyReLU"), draw.mlp(2, 6, 1, act="LeakyReLU")
    opt_g = torch.optim.Adam(G.parameters(), lr=0.01, betas=(0.0, 0.9))
    opt_d = torch.optim.Adam(D.parameters(), lr=0.01, betas=(0.0, 0.9))

    def penalty(real, fake):
        t = draw.uniform(real.size(0), 1).expand_as(real)
        between = (t * real + (1 - t) * fake).requires_grad_(True)
        scores = D(between)
        (slope,) = torch.autograd.grad(
            outputs=scores,
            inputs=between,
            grad_outputs=torch.ones_like(scores),
            create_graph=True,
            retain_graph=True,
            only_inputs=True,
        )
        return ((slope.norm(2, dim=1) - 1) ** 2).mean()

    while True:
        real, fake = draw(5, 2), G(draw(5, 2))
        opt_d.zero_grad()
        gp = penalty(real.data, fake.data)
        loss_d = D(fake.detach()).mean() - D(real).mean() + 10 * gp
        loss_d.backward()
        opt_d.step()
        opt_g.zero_grad()
        loss_g = -D(fake).mean()
        loss_g.backward()
        opt_g.step()
        yield gp, loss_d, loss_g, G, D


@program
def cycle_consistency(torch, draw):
    F = torch.nn.functional
    there, back = draw.mlp(3, 5, 3, act="LeakyReLU"), draw.mlp(3, 5, 3, act="LeakyReLU")
    D = draw.mlp(3, 5, 1, act="LeakyReLU")
    opt_g = torch.optim.Adam(itertools.chain(there.parameters(), back.parameters()), lr=0.01)
    opt_d = torch.optim.Adam(D.parameters(), lr=0.01)
    pool = []
    while True:
        a, b = draw(4, 3), draw(4, 3)
        for p in D.parameters():
            p.requires_grad_(False)
        opt_g.zero_grad()
        fake_b = there(a)
        score = D(fake_b)
        loss_g = F.mse_loss(score, torch.ones_like(score))
        loss_g = loss_g + 10 * (F.l1_loss(back(fake_b), a) + F.l1_loss(there(back(b)), b))
        loss_g.backward()
        opt_g.step()
        flags = [p.requires_grad for p in D.parameters()] + [p.grad is None for p in D.parameters()]
        for p in D.parameters():
            p.requires_grad_(True)
        pool.append(fake_b.detach())
        old = pool[draw.below(len(pool))]
        del pool[:-3]
        opt_d.zero_grad()
        score_real, score_fake = D(b), D(old)
        loss_d = 0.5 * (
            F.mse_loss(score_real, torch.ones_like(score_real))
            + F.mse_loss(score_fake, torch.zeros_like(score_fake))
        )
        loss_d.backward()
        opt_d.step()
        yield loss_g, loss_d, flags, there, back, D


@program
def conditional_gan(torch, draw):
    nn = torch.nn

    class Generator(nn.Module):
        def __init__(self):
            super().__init__()
            self.label = nn.Embedding(3, 2)
            self.net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))

        def forward(self, z, y):
            return self.net(torch.cat([z, self.label(y)], -1))

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.label = nn.Embedding(3, 2)
            self.net = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.2), nn.Linear(6, 1))

        def forward(self, x, y):
            return self.net(torch.cat((x, self.label(y)), dim=1)).squeeze(-1)

    G, D = draw.into(Generator()), draw.into(Discriminator())
    loss = nn.BCEWithLogitsLoss()
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.5) for m in (G, D)]
    history = {"g": [], "d": []}
    while True:
        y = draw.classes(3, 5)
        z = draw(5, 2)
        optimizers[0].zero_grad()
        made = G(z, y)
        g_loss = loss(D(made, y), torch.full((5,), 0.9))
        g_loss.backward()
        optimizers[0].step()
        optimizers[1].zero_grad()
        d_loss = (
            loss(D(draw(5, 2), y), torch.full((5,), 0.9))
            + loss(D(made.detach(), y), torch.zeros(5))
        ) / 2
        d_loss.backward()
        optimizers[1].step()
        history["g"].append(g_loss.detach())
        history["d"].append(d_loss.detach())
        yield history["g"][-1], history["d"][-1], G, D


@program
def fast_gradient_sign(torch, draw):
    """Adversarial examples: the gradient with respect to the input, and training on both."""
    F = torch.nn.functional
    model = draw.mlp(4, 8, 3, act="LeakyReLU")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        x, y = draw(6, 4), draw.classes(3, 6)
        x.requires_grad = True
        loss = F.cross_entropy(model(x), y)
        model.zero_grad()
        loss.backward()
        attacked = torch.clamp(x + 0.1 * x.grad.data.sign(), -2, 2).detach()
        optimizer.zero_grad()
        robust = F.cross_entropy(model(attacked), y)
        robust.backward()
        optimizer.step()
        yield loss, robust, x, attacked, model


@program
def projected_gradient_attack(torch, draw):
    F = torch.nn.functional
    model = draw.mlp(4, 8, 3, act="LeakyReLU").eval()
    for p in model.parameters():
        p.requires_grad = False
    while True:
        x, y = draw(3, 4), draw.classes(3, 3)
        delta = torch.zeros_like(x, requires_grad=True)
        for _ in range(3):
            F.cross_entropy(model(x + delta), y).backward()
            delta.data = (delta + 0.1 * delta.grad.detach().sign()).clamp(-0.2, 0.2)
            delta.grad.zero_()
        yield delta.tolist(), delta, model


@program
def reversed_gradients(torch, draw):
    """Domain adaptation with a Function that negates gradients."""
    F = torch.nn.functional

    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, alpha):
            ctx.alpha = alpha
            return x.view_as(x)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.neg() * ctx.alpha, None

    body, label, domain = (draw.mlp(*s, act="LeakyReLU") for s in ((4, 6), (6, 3), (6, 2)))
    nets = torch.nn.ModuleList([body, label, domain])
    optimizer = torch.optim.SGD(nets.parameters(), lr=0.05, momentum=0.9)
    for step in itertools.count():
        alpha = 2.0 / (1.0 + 2.718 ** (-0.1 * (step % 4))) - 1
        features = torch.relu(body(draw(6, 4)))
        loss = F.cross_entropy(label(features[:3]), draw.classes(3, 3))
        where = F.cross_entropy(
            domain(Reverse.apply(features, alpha)), torch.tensor([0, 0, 0, 1, 1, 1])
        )
        optimizer.zero_grad()
        (loss + where).backward()
        optimizer.step()
        yield loss, where, nets


@program
def energy_based_model_with_langevin(torch, draw):
    """Samples walk down the energy; a buffer keeps them from step to step."""
    energy = draw.mlp(2, 8, 1, act="LeakyReLU")
    optimizer = torch.optim.Adam(energy.parameters(), lr=0.01)
    buffer = draw(4, 2)
    while True:
        x = buffer.clone().detach().requires_grad_(True)
        for p in energy.parameters():
            p.requires_grad_(False)
        for _ in range(3):
            (slope,) = torch.autograd.grad(energy(x).sum(), x)
            x.data.add_(slope, alpha=-0.1).add_(0.01 * draw(4, 2))
        for p in energy.parameters():
            p.requires_grad_(True)
        buffer = x.detach()
        optimizer.zero_grad()
        positive, negative = energy(draw(4, 2)), energy(buffer)
        loss = positive.mean() - negative.mean() + 0.1 * (positive**2 + negative**2).mean()
        loss.backward()
        optimizer.step()
        yield loss, buffer, x, energy
