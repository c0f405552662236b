"""Writes through `.data` between a forward and its backward pass, which reads the new values."""

from __future__ import annotations

from . import program, raised, update


@program
def data_written_between_forward_and_backward(torch, draw):
    w, x = draw(3, requires_grad=True), draw(3, requires_grad=True)
    while True:
        ((w * x * x.sin()).sum()).backward()
        y = (w * x * x.sin()).sum()
        w.data.add_(1)
        y.backward()
        h = x * 2
        y = (h**2).sum() + (h * w).sum()
        h.data.mul_(10)
        y.backward()
        yield w.grad, x.grad, w, h
        w.grad = x.grad = None


@program
def rows_of_data_written(torch, draw):
    model = draw.mlp(3, 4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        loss = model(draw(5, 3)).pow(2).mean()
        model[2].weight.data[0] = 1.0
        model[2].weight.data.clamp_(-1, 1)
        update(optimizer, loss)
        yield loss, model


@program
def data_written_after_the_loss_was_read(torch, draw):
    model = draw.mlp(3, 4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        loss = model(draw(5, 3)).pow(2).mean()
        read = loss.item()
        model[2].weight.data.mul_(0.5)
        update(optimizer, loss)
        yield loss, read, model


@program
def weights_rounded_in_the_forward_pass(torch, draw):
    """The backward pass of a convolution reads the weights that are there again, that of a linear
    layer a view of those that it met."""
    nn = torch.nn
    model = draw.into(nn.Sequential(nn.Conv1d(2, 3, 2), nn.Tanh(), nn.Conv1d(3, 2, 2), nn.Tanh()))
    head, scale = draw.mlp(4, 5, 1), nn.Parameter(draw(4))
    parameters = [*model.parameters(), *head.parameters(), scale]
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    for step in range(1000):
        kept = [p.data for p in parameters]
        for p in parameters:
            p.data = torch.round(p.data * 4) / 4
        loss = head(model(draw(5, 2, 4)).flatten(1) * scale).pow(2).mean()
        if step % 2:
            loss.item()
        for p, own in zip(parameters, kept):
            p.data = own
        update(optimizer, loss)
        yield loss, parameters


@program
def weights_that_are_signs(torch, draw):
    model = draw.mlp(3, 4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        kept = [p.data.clone() for p in model.parameters()]
        for p in model.parameters():
            p.data.sign_()
        loss = model(draw(5, 3)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        for p, own in zip(model.parameters(), kept):
            p.data.copy_(own)
        optimizer.step()
        for p in model.parameters():
            p.data.clamp_(-1, 1)
        yield loss, model


def _data_between(torch, draw, read):
    w, v, noise = draw(3, 3, requires_grad=True), draw(3, requires_grad=True), draw(3)
    conv = draw.into(torch.nn.Conv1d(2, 3, 2))

    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    def made(loss):
        if read:
            loss.item()
        return loss

    while True:
        out = []
        y = made((w[0] * v).sum() + (w.t() @ v).sin().sum())
        w.data[1:] *= 0.5
        w.data.t()[0].add_(0.25)
        y.backward()
        out.append((w.grad, v.grad, w.detach().clone()))
        w.grad = v.grad = None
        y = made((v * noise).sum())
        noise.data.fill_(0.5)
        noise.data[1] = 3
        y.backward()
        e = v.exp()
        y = made((e * v).sum())
        e.data.zero_()
        y.backward()
        y = made(Square.apply(v).sum())
        v.data.mul_(-1)
        y.backward()
        y = made(conv(noise.new_ones(1, 2, 5)).pow(2).mean())
        for p in conv.parameters():
            p.data.clamp_(-0.1, 0.1)
        y.backward()
        out.append((v.grad, [p.grad.clone() for p in conv.parameters()]))
        conv.zero_grad()
        v.grad = w.grad = None
        y = made((w * v).pow(2).sum())
        for _ in range(3):
            y.backward(retain_graph=True)
            v.data.sub_(0.1 * v.grad)
            out.append((v.grad.clone(), w.grad.clone()))
        v.grad = w.grad = None
        y = made((v * v).sum())  # other writes are refused as before
        v.data.add_(1)
        with torch.no_grad():
            v.add_(1)
        out.append(type(raised(y.backward)).__name__)
        out.append((v.data._version, v._version > 0))
        with torch.no_grad():
            for t in (v, w, noise):
                t.copy_(draw(*t.shape))
        draw.into(conv)
        yield out


@program
def data_of_views_results_and_functions(torch, draw):
    yield from _data_between(torch, draw, read=False)


@program
def data_of_values_that_an_earlier_epoch_saved(torch, draw):
    yield from _data_between(torch, draw, read=True)


@program
def part_of_data_written_before_and_after_a_read(torch, draw):
    """What a backward pass reads of a part of `.data` is its value then, of that part alone."""
    weight = draw(6, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.01)
    while True:
        h = weight * draw(6)
        loss = (h.data[1::2] * h.sum()).tanh().sum() + (h * h.data.view(2, 3).sum()).sum()
        h.data.mul_(0.5)
        known = loss.item()
        h.data.add_(draw(6))
        update(optimizer, loss)
        yield known, h, weight


@program
def weights_rounded_by_hooks(torch, draw):
    model = draw.mlp(3, 4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = {}

    def rounded(module, inputs):
        kept[module] = module.weight.data
        module.weight.data = (module.weight.data * 4).round() / 4

    def restored(module, inputs, result):
        module.weight.data = kept.pop(module)

    for layer in model[::2]:
        layer.register_forward_pre_hook(rounded)
        layer.register_forward_hook(restored)
    while True:
        loss = model(draw(5, 3)).pow(2).mean()
        update(optimizer, loss)
        yield loss, model


@program
def codebook_of_running_averages(torch, draw):
    nn = torch.nn
    encoder, decoder, book = draw.mlp(4, 6, 3), draw.mlp(3, 6, 4), draw.into(nn.Embedding(5, 3))
    book.weight.requires_grad = False
    counts, sums = torch.zeros(5, dtype=book.weight.dtype), book.weight.data.clone()
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
    while True:
        z = encoder(draw(8, 4))
        near = torch.cdist(z, book.weight).argmin(1)
        chosen = nn.functional.one_hot(near, 5).to(z.dtype)
        coded = book(near)
        counts = counts * 0.9 + 0.1 * chosen.sum(0)
        sums = sums * 0.9 + 0.1 * chosen.t() @ z.detach()
        book.weight.data.copy_(sums / (counts[:, None] + 1e-2))
        told = nn.functional.mse_loss(decoder(z + (coded - z).detach()), draw(8, 4))
        loss = told + 0.25 * nn.functional.mse_loss(z, coded.detach())
        update(optimizer, loss)
        yield loss, near, book, encoder
