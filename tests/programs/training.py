"""Loops over models, optimizers and schedules."""

from __future__ import annotations

import itertools

from . import program


@program
def digits(torch, draw):
    """The MNIST script: convolutions, train() and eval(), accuracy by `.item()`."""
    nn, F = torch.nn, torch.nn.functional

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 3, 3, 1)
            self.conv2 = nn.Conv2d(3, 4, 3, 1)
            self.dropout = nn.Dropout(0.0)
            self.fc = nn.Linear(4, 5)

        def forward(self, x):
            x = F.relu(self.conv1(x))
            x = F.max_pool2d(F.relu(self.conv2(x)), 2)
            x = self.dropout(torch.flatten(x, 1))
            return F.log_softmax(self.fc(x), dim=1)

    model = draw.into(Net())
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    test = [(draw(3, 1, 6, 6), draw.classes(5, 3)) for _ in range(2)]
    while True:
        model.train()
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.nll_loss(model(draw(4, 1, 6, 6)), draw.classes(5, 4))
            loss.backward()
            optimizer.step()
        model.eval()
        test_loss, correct = 0, 0
        with torch.no_grad():
            for data, target in test:
                output = model(data)
                test_loss += F.nll_loss(output, target, reduction="sum").item()
                pred = output.argmax(dim=1, keepdim=True)
                correct += pred.eq(target.view_as(pred)).sum().item()
        scheduler.step()
        yield loss, test_loss / 6, correct, optimizer.param_groups[0]["lr"], model


@program
def accumulated_gradients(torch, draw):
    model = draw.into(torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    while True:
        for i in range(4):
            loss = model(draw(2, 3)).pow(2).mean() / 2
            loss.backward()
            if (i + 1) % 2 == 0:
                optimizer.step()
                optimizer.zero_grad()
        yield loss, [p.grad is None for p in model.parameters()], model


@program
def zeroed_not_dropped(torch, draw):
    """`set_to_none=False`: gradients stay, and so do momentum and decay of what isn't used."""
    nn = torch.nn
    used, unused = draw.into(nn.Linear(3, 2)), draw.into(nn.Linear(3, 2))
    params = [*used.parameters(), *unused.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9, weight_decay=0.01)
    unused(draw(2, 3)).sum().backward()
    while True:
        optimizer.zero_grad(set_to_none=False)
        loss = used(draw(4, 3)).tanh().sum()
        loss.backward()
        optimizer.step()
        yield loss, used, unused, optimizer


@program
def losses_kept_with_their_graphs(torch, draw):
    """`total += loss` without `.item()`: each loss lives as long as the epoch does."""
    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        total = 0
        for _ in range(4):
            optimizer.zero_grad()
            loss = (model(draw(5, 3)) - 1).pow(2).mean()
            loss.backward()
            optimizer.step()
            total += loss
        yield total / 4, total.requires_grad, model


@program(varies="a list is stacked that is longer at each step")
def running_averages_read_late(torch, draw):
    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    history, average = [], None
    while True:
        loss = (model(draw(5, 3)) - 1).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.detach())
        average = loss.detach() if average is None else 0.9 * average + 0.1 * loss.detach()
        yield torch.stack(history[-50:]).mean(), average, model


@program
def losses_stacked_before_one_backward(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)))
    optimizer = torch.optim.RMSprop(model.parameters(), lr=0.01)
    while True:
        losses = []
        for _ in range(3):
            losses.append(model(draw(3, 2)).pow(2).mean())
        weights = torch.softmax(torch.stack(losses).detach(), 0)
        loss = (torch.stack(losses) * weights).sum()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        yield loss, losses, weights, model


@program
def two_optimizers_on_one_loss(torch, draw):
    nn = torch.nn
    body, head = draw.into(nn.Linear(3, 4)), draw.into(nn.Linear(4, 2))
    opt_body = torch.optim.Adagrad(body.parameters(), lr=0.05)
    opt_head = torch.optim.NAdam(head.parameters(), lr=0.02)
    for step in itertools.count():
        loss = nn.functional.cross_entropy(head(body(draw(6, 3)).relu()), draw.classes(2, 6))
        opt_body.zero_grad()
        opt_head.zero_grad()
        loss.backward()
        opt_head.step()
        if step % 2:
            opt_body.step()
        yield loss, body, head


@program
def groups_and_schedules(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)))
    optimizer = torch.optim.SGD(
        [{"params": model[0].parameters(), "lr": 0.01}, {"params": model[2].parameters()}],
        lr=0.1,
        momentum=0.9,
        nesterov=True,
    )
    warm = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: min(1.0, (e + 1) / 5))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2, factor=0.5)
    while True:
        optimizer.zero_grad()
        loss = model(draw(4, 3)).pow(2).mean()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        warm.step()
        plateau.step(loss.item())
        yield loss, [g["lr"] for g in optimizer.param_groups], model


@program(varies="betas are part of a plan")
def one_cycle(torch, draw):
    model = draw.into(torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=60)
    while True:
        loss = torch.nn.functional.cross_entropy(model(draw(5, 4)), draw.classes(2, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        yield loss, schedule.get_last_lr(), model


@program
def cosine_restarts_and_a_skipped_step(torch, draw):
    """A loss that isn't finite is skipped, as loss scaling does."""
    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=4)
    skipped = 0
    for step in itertools.count():
        x = draw(4, 3)
        if step % 3 == 1:
            x[0, 0] = float("inf")
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        if all(torch.isfinite(p.grad).all() for p in model.parameters()):
            optimizer.step()
        else:
            skipped += 1
        schedule.step()
        yield loss, skipped, optimizer.param_groups[0]["lr"], model


@program
def frozen_backbone_then_thawed(torch, draw):
    nn = torch.nn
    backbone = draw.into(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU()))
    head = draw.into(nn.Linear(4, 2))
    for p in backbone.parameters():
        p.requires_grad = False
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    for step in itertools.count():
        if step == 2:
            for p in backbone.parameters():
                p.requires_grad_(True)
            optimizer.add_param_group({"params": list(backbone.parameters()), "lr": 0.01})
        backbone.train(step % 2 == 0)
        loss = nn.functional.cross_entropy(head(backbone(draw(5, 3))), draw.classes(2, 5))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, backbone, head


@program
def head_replaced_amid_training(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in itertools.count():
        if step in (2, 4):
            model[2] = draw.into(nn.Linear(4, 2 + step))
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        if step == 3:
            model[0].weight = nn.Parameter(model[0].weight.detach() * 0.5)
            optimizer.param_groups[0]["params"] = list(model.parameters())
        out = model(draw(4, 3))
        loss = nn.functional.cross_entropy(out, draw.classes(2, 4))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, out, model


@program
def tied_weights(torch, draw):
    nn = torch.nn

    class Autoencoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Linear(5, 3)
            self.bias = nn.Parameter(torch.zeros(5))

        def forward(self, x):
            h = torch.sigmoid(self.encoder(x))
            return nn.functional.linear(h, self.encoder.weight.t(), self.bias)

    model = draw.into(Autoencoder())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    while True:
        x = draw(4, 5)
        noisy = x + 0.1 * draw(4, 5)
        loss = nn.functional.mse_loss(model(noisy), x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, model


@program
def batch_norm_in_both_modes(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        model.train()
        loss = model(draw(3, 1, 5, 5)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            out = model(draw(2, 1, 5, 5))
        yield loss, out, model


@program
def moving_average_of_weights(torch, draw):
    import copy

    nn = torch.nn
    model = draw.into(
        nn.Sequential(nn.Linear(3, 4, bias=False), nn.BatchNorm1d(4), nn.Linear(4, 1))
    )
    ema = copy.deepcopy(model).eval()
    for p in ema.parameters():
        p.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        loss = model(draw(4, 3)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for p, q in zip(ema.parameters(), model.parameters()):
                p.mul_(0.9).add_(q.data, alpha=0.1)
            for a, b in zip(ema.buffers(), model.buffers()):
                a.copy_(b)
        yield loss, ema(torch.ones(2, 3)), ema, model


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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, exits is None, [p.grad is None for p in net.parameters()], net


@program
def stopped_early_with_the_best_weights(torch, draw):
    import copy

    model = draw.into(torch.nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    best, bad, weights = float("inf"), 0, None
    x, y, vx, vy = draw(6, 3), draw(6, 1), draw(4, 3), draw(4, 1)
    while True:
        optimizer.zero_grad()
        (model(x) - y).pow(2).mean().backward()
        optimizer.step()
        with torch.no_grad():
            val = (model(vx) - vy).pow(2).mean().item()
        if val < best:
            best, bad, weights = val, 0, copy.deepcopy(model.state_dict())
        else:
            bad += 1
        if bad >= 3:
            model.load_state_dict(weights)
            draw.into(model)
            best, bad = float("inf"), 0
        yield best, bad, weights, model


@program
def pruned_by_masks(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    masks = {n: torch.ones_like(p) for n, p in model.named_parameters() if p.dim() > 1}
    for step in itertools.count():
        if step % 3 == 2:
            for name, p in model.named_parameters():
                if name in masks:
                    threshold = p.detach().abs().flatten().median()
                    masks[name] = (p.detach().abs() > threshold * 0.5).to(p.dtype)
                    p.data.mul_(masks[name])
        loss = nn.functional.cross_entropy(model(draw(5, 4)), draw.classes(2, 5))
        optimizer.zero_grad()
        loss.backward()
        for name, p in model.named_parameters():
            if name in masks:
                p.grad.data.mul_(masks[name])
        optimizer.step()
        yield loss, [m.sum().item() for m in masks.values()], model


@program
def spectral_norm_by_hand(torch, draw):
    nn = torch.nn

    class SpectralLinear(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(b, a))
            self.register_buffer("u", torch.ones(b) / b**0.5)

        def forward(self, x):
            with torch.no_grad():
                v = nn.functional.normalize(self.weight.t() @ self.u, dim=0)
                self.u.copy_(nn.functional.normalize(self.weight @ v, dim=0))
            sigma = self.u.clone() @ self.weight @ v
            return nn.functional.linear(x, self.weight / sigma)

    model = draw.into(nn.Sequential(SpectralLinear(3, 4), nn.ReLU(), SpectralLinear(4, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    while True:
        loss = (model(draw(5, 3)) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, model


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
    nn, F = torch.nn, torch.nn.functional
    net = draw.into(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.02)
    while True:
        a, b, c = (net(draw(4, 4)) for _ in range(3))
        same = torch.tensor([1.0, 0.0, 1.0, 0.0])
        distance = F.pairwise_distance(a, b)
        contrastive = same * distance.pow(2) + (1 - same) * F.relu(1.0 - distance).pow(2)
        triplet = F.triplet_margin_loss(a, b, c, margin=0.5)
        loss = contrastive.mean() + triplet
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield distance, triplet, loss, net


@program
def momentum_encoder_with_a_queue(torch, draw):
    """Contrast against a queue of keys in a buffer, written to in a ring."""
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss, model


@program
def simclr_loss(torch, draw):
    nn, F = torch.nn, torch.nn.functional
    net = draw.into(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    while True:
        x = draw(3, 4)
        z = F.normalize(net(torch.cat([x + 0.1 * draw(3, 4), x + 0.1 * draw(3, 4)])), dim=1)
        similar = z @ z.T / 0.5
        similar.fill_diagonal_(float("-inf"))
        labels = torch.arange(6).roll(3)
        loss = F.cross_entropy(similar, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
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
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield losses, sigmas, body, heads


@program
def autocast_steps(torch, draw):
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x, y = draw(6, 4), draw.classes(2, 6)
    while True:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(x)
            loss = nn.functional.cross_entropy(out.float(), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield str(out.dtype).split(".")[-1], [p.dtype == loss.dtype for p in model.parameters()]
