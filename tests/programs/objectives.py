"""Losses for pictures, pairs, graphs and several tasks."""

from __future__ import annotations

from . import program, update


@program
def distillation(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    teacher, student = draw.into(nn.Linear(4, 3)).eval(), draw.into(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(student.parameters(), lr=0.2)
    T = 2.0
    while True:
        x, y = draw(5, 4), draw.classes(3, 5)
        with torch.no_grad():
            soft = F.softmax(teacher(x) / T, dim=1)
        out = student(x)
        kl = F.kl_div(F.log_softmax(out / T, dim=1), soft, reduction="batchmean") * T * T
        loss = 0.5 * kl + 0.5 * F.cross_entropy(out, y, label_smoothing=0.1)
        update(optimizer, loss)
        yield kl, loss, student, teacher


@program
def mixed_examples(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    model = draw.into(nn.Linear(4, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        x, y = draw(6, 4), draw.classes(3, 6)
        lam, index = draw.rng.beta(1.0, 1.0), torch.tensor(draw.order(6))
        out = model(lam * x + (1 - lam) * x[index])
        loss = lam * F.cross_entropy(out, y) + (1 - lam) * F.cross_entropy(out, y[index])
        update(optimizer, loss)
        right = (out.argmax(1) == y).float().mean()
        yield loss, right, model


@program
def early_exits(torch, draw):
    """Each sample may leave at the first confident head; losses of both are weighted."""
    nn, F = torch.nn, torch.nn.functional
    body = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    heads = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])
    net = draw.into(nn.ModuleDict({"body": body, "heads": heads}))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        x, y = draw(4, 4), draw.classes(3, 4)
        h, loss, exits = x, 0.0, None
        for layer, head in zip(body, heads):
            h = torch.relu(layer(h))
            out = head(h)
            loss = loss + F.cross_entropy(out, y)
            if F.softmax(out, 1).max(1).values.mean() > 0.8:
                exits = out
                break
        update(optimizer, loss)
        yield loss, exits is None, [p.grad is None for p in net.parameters()], net


@program
def super_resolution(torch, draw):
    nn = torch.nn
    model = draw.into(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))
    )
    shuffle = nn.PixelShuffle(2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        target = draw(2, 1, 6, 6)
        small = nn.functional.avg_pool2d(target, 2)
        optimizer.zero_grad()
        out = shuffle(model(small))
        loss = nn.functional.mse_loss(out, target)
        loss.backward()
        optimizer.step()
        psnr = 10 * torch.log10(1 / loss.detach())
        yield loss.item(), psnr, out, model


@program
def neural_style(torch, draw):
    """The picture is the parameter; a frozen net gives features and Gram matrices."""
    nn = torch.nn
    net = draw.into(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 3, 3)))
    for p in net.parameters():
        p.requires_grad_(False)

    def gram(x):
        b, c, h, w = x.shape
        f = x.view(b * c, h * w)
        return f @ f.t() / (b * c * h * w)

    content, style = net(draw(1, 1, 6, 6)).detach(), gram(net(draw(1, 1, 6, 6))).detach()
    picture = draw(1, 1, 6, 6).requires_grad_(True)
    optimizer = torch.optim.SGD([picture], lr=0.5)
    while True:
        with torch.no_grad():
            picture.clamp_(-1, 1)
        optimizer.zero_grad()
        features = net(picture)
        loss = nn.functional.mse_loss(features, content)
        loss = loss + 10 * nn.functional.mse_loss(gram(features), style)
        loss.backward()
        optimizer.step()
        yield loss, picture


@program
def siamese_and_triplets(torch, draw):
    F = torch.nn.functional
    net = draw.mlp(4, 5, 3, act="ReLU")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    while True:
        a, b, c = (net(draw(4, 4)) for _ in range(3))
        same = torch.tensor([1.0, 0.0, 1.0, 0.0])
        distance = F.pairwise_distance(a, b)
        contrastive = same * distance.pow(2) + (1 - same) * F.relu(1.0 - distance).pow(2)
        triplet = F.triplet_margin_loss(a, b, c, margin=0.5)
        loss = contrastive.mean() + triplet
        update(optimizer, loss)
        yield distance, triplet, loss, net


@program
def momentum_encoder_with_a_queue(torch, draw):
    """Contrast against a queue of keys, in a ring buffer."""
    import copy

    nn, F = torch.nn, torch.nn.functional

    class MoCo(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = draw.into(nn.Linear(4, 3))
            self.k = copy.deepcopy(self.q)
            for p in self.k.parameters():
                p.requires_grad = False
            self.register_buffer("queue", F.normalize(draw(3, 6), dim=0))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, x, y):
            q = F.normalize(self.q(x), dim=1)
            with torch.no_grad():
                for p, r in zip(self.q.parameters(), self.k.parameters()):
                    r.data = r.data * 0.9 + p.data * 0.1
                k = F.normalize(self.k(y), dim=1)
            positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
            negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
            logits = torch.cat([positive, negative], dim=1) / 0.2
            at = int(self.at)
            self.queue[:, at : at + 2] = k.T
            self.at[0] = (at + 2) % 6
            return logits, torch.zeros(logits.shape[0], dtype=torch.long)

    model = MoCo()
    optimizer = torch.optim.SGD(model.q.parameters(), lr=0.1)
    while True:
        x = draw(2, 4)
        logits, labels = model(x, x + 0.1 * draw(2, 4))
        loss = F.cross_entropy(logits, labels)
        update(optimizer, loss)
        yield loss, model


@program
def simclr_loss(torch, draw):
    F = torch.nn.functional
    net = draw.mlp(4, 5, 3, act="ReLU")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        x = draw(3, 4)
        z = F.normalize(net(torch.cat([x + 0.1 * draw(3, 4), x + 0.1 * draw(3, 4)])), dim=1)
        similar = z @ z.T / 0.5
        similar.fill_diagonal_(float("-inf"))
        labels = torch.arange(6).roll(3)
        loss = F.cross_entropy(similar, labels)
        update(optimizer, loss)
        yield loss, net


@program
def matrix_factors_and_word_vectors(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    users, items = draw.into(nn.Embedding(5, 3)), draw.into(nn.Embedding(6, 3))
    center, context = draw.into(nn.Embedding(7, 3)), draw.into(nn.Embedding(7, 3))
    nets = nn.ModuleList([users, items, center, context])
    optimizer = torch.optim.Adagrad(nets.parameters(), lr=0.1)
    while True:
        u, i, r = draw.classes(5, 4), draw.classes(6, 4), draw.uniform(4)
        rating = F.mse_loss((users(u) * items(i)).sum(1), r)
        c, near, far = draw.classes(7, 3), draw.classes(7, 3), draw.classes(7, 3, 2)
        score = (center(c) * context(near)).sum(1)
        bad = torch.bmm(context(far), center(c).unsqueeze(2)).squeeze(2)
        words = -(F.logsigmoid(score) + F.logsigmoid(-bad).sum(1)).mean()
        optimizer.zero_grad()
        (rating + words).backward()
        optimizer.step()
        yield rating, words, nets


@program
def graph_convolution(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    edges = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 4, 4]])
    edges = torch.cat([edges, edges.flip(0)], 1)
    A = torch.zeros(5, 5)
    A[edges[0], edges[1]] = 1
    A = A + torch.eye(5)
    degree = A.sum(1).pow(-0.5)
    A = degree[:, None] * A * degree[None]
    first, second = draw.into(nn.Linear(3, 4)), draw.into(nn.Linear(4, 2))
    optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.02)
    x, y = draw(5, 3), draw.classes(2, 5)
    train = torch.tensor([True, True, False, True, False])
    while True:
        h = F.relu(A @ first(x))
        sent = torch.zeros_like(h).index_add_(0, edges[1], h[edges[0]])
        out = second(sent)
        loss = F.cross_entropy(out[train], y[train])
        update(optimizer, loss)
        right = (out[~train].argmax(1) == y[~train]).sum().item()
        yield loss, right, first, second


@program
def support_vectors_and_logistic_regression(torch, draw):
    F = torch.nn.functional
    x, y = draw(8, 2), torch.tensor([1.0, -1.0] * 4)
    w, b = torch.zeros(2, requires_grad=True), torch.zeros(1, requires_grad=True)
    line = draw.into(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD([w, b, *line.parameters()], lr=0.1)
    while True:
        hinge = torch.clamp(1 - y * (x @ w + b), min=0).mean() + 0.01 * w.dot(w)
        logistic = F.binary_cross_entropy(torch.sigmoid(line(x)).squeeze(1), (y + 1) / 2)
        optimizer.zero_grad()
        hinge.backward()
        logistic.backward()
        optimizer.step()
        yield hinge, logistic, w, b, line


@program
def detached_mixture_of_tasks(torch, draw):
    """Uncertainty weights are parameters; one task's features are detached."""
    nn = torch.nn
    body = draw.into(nn.Linear(3, 4))
    heads = nn.ModuleList([draw.into(nn.Linear(4, 1)) for _ in range(2)])
    sigmas = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.Adam([*body.parameters(), *heads.parameters(), sigmas], lr=0.01)
    while True:
        h = torch.tanh(body(draw(5, 3)))
        losses = torch.stack([heads[0](h).pow(2).mean(), heads[1](h.detach()).pow(2).mean()])
        loss = (losses * torch.exp(-sigmas) + sigmas).sum()
        update(optimizer, loss)
        yield losses, sigmas, body, heads
