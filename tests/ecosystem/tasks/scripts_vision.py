"""Scripts of image models: digits, CIFAR's networks, segmentation, detection, transformers."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from task import choose, draw, settle, task
from training import steps


def classified(model, size=32, channels=3, classes=10, batch=4, make=torch.optim.SGD, **options):
    settle(model).train()
    x, y = draw(batch, channels, size, size), choose(classes, batch)
    optimizer = make(model.parameters(), **(options or {"lr": 0.01}))
    yield from steps(model, lambda: F.cross_entropy(model(x), y), optimizer)


def norm(channels):
    return nn.GroupNorm(4, channels)


@task("MNIST: two convolutions, Adadelta, StepLR, a test pass")
def mnist():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1, self.conv2 = nn.Conv2d(1, 8, 3, 1), nn.Conv2d(8, 16, 3, 1)
            self.fc1, self.fc2 = nn.Linear(2304, 32), nn.Linear(32, 10)

        def forward(self, x):
            x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
            return F.log_softmax(self.fc2(F.relu(self.fc1(torch.flatten(x, 1)))), dim=1)

    model, x, y = settle(Net()), draw(12, 1, 28, 28), choose(10, 12)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4)
    for epoch in range(2):
        model.train()
        for index, (data, target) in enumerate(loader):
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            loss.backward()
            optimizer.step()
            yield f"loss {epoch} {index}", loss.item()
        model.eval()
        with torch.no_grad():
            output = model(x)
            right = output.argmax(dim=1, keepdim=True).eq(y.view(-1, 1)).sum().item()
        yield f"right {epoch}", right
        schedule.step()
    yield "rate", optimizer.param_groups[0]["lr"]


@task("MNIST rows read by an LSTM")
def mnist_rnn():
    rnn, last = nn.LSTM(28, 32, batch_first=True), nn.Linear(32, 10)
    model, x, y = settle(nn.ModuleList([rnn, last])), draw(4, 28, 28), choose(10, 4)
    optimizer = torch.optim.Adadelta(model.parameters(), lr=0.1)
    yield from steps(model, lambda: F.cross_entropy(last(rnn(x)[0][:, -1]), y), optimizer)


@task("forward-forward: layers that learn by local losses")
def forward_forward():
    layers = settle(nn.ModuleList([nn.Linear(20, 16), nn.Linear(16, 16)]))
    good, bad = draw(8, 20), draw(8, 20, seed=1)
    for k, layer in enumerate(layers):
        optimizer = torch.optim.Adam(layer.parameters(), lr=0.02)
        for step in range(3):
            up, down = (layer(F.normalize(v)).relu().pow(2).mean(1) for v in (good, bad))
            loss = torch.log(1 + torch.exp(torch.cat([2.0 - up, down - 2.0]))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            yield f"layer {k} loss {step}", loss.item()
        good, bad = (layer(F.normalize(v)).relu().detach() for v in (good, bad))


class Block(nn.Module):
    """A residual block of CIFAR's ResNets."""

    def __init__(self, fan_in, fan_out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.n1, self.n2 = norm(fan_out), norm(fan_out)
        self.short = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.short = nn.Conv2d(fan_in, fan_out, 1, stride, bias=False)

    def forward(self, x):
        out = self.n2(self.conv2(F.relu(self.n1(self.conv1(x)))))
        return F.relu(out + self.short(x))


@task("CIFAR: ResNet")
def cifar_resnet():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 1, 1), Block(8, 8), Block(8, 16, 2), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    yield from classified(model, lr=0.1, momentum=0.9, weight_decay=5e-4)


@task("CIFAR: VGG and LeNet")
def cifar_vgg():
    layers, fan_in = [], 3
    for width in (8, "M", 16, "M", 32, 32, "M"):
        if width == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(fan_in, width, 3, padding=1), norm(width), nn.ReLU(inplace=True)]
            fan_in = width
    yield from classified(nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 10)))
    lenet = nn.Sequential(
        nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 10),
    )  # fmt: skip
    for name, value in classified(lenet):
        yield f"LeNet {name}", value


@task("CIFAR: DenseNet")
def cifar_densenet():
    class Dense(nn.Module):
        def __init__(self, width, grow):
            super().__init__()
            self.norm, self.conv = norm(width), nn.Conv2d(width, grow, 3, padding=1)

        def forward(self, x):
            return torch.cat([self.conv(F.relu(self.norm(x))), x], 1)

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), Dense(8, 4), Dense(12, 4), nn.Conv2d(16, 8, 1),
        nn.AvgPool2d(2), Dense(8, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10),
    )  # fmt: skip
    yield from classified(model)


@task("CIFAR: MobileNet, ShuffleNet's and squeeze-excitation's blocks")
def cifar_mobile():
    class Squeezed(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.down, self.up = nn.Conv2d(width, width // 4, 1), nn.Conv2d(width // 4, width, 1)

        def forward(self, x):
            return x * torch.sigmoid(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))

    class Shuffled(nn.Module):
        def forward(self, x):
            n, c, h, w = x.size()
            return x.view(n, 2, c // 2, h, w).permute(0, 2, 1, 3, 4).reshape(n, c, h, w)

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, 2, 1), norm(16), nn.Hardswish(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 32, 1), norm(32), nn.ReLU6(),
        Squeezed(32), Shuffled(), nn.Conv2d(32, 32, 3, padding=1, groups=2), nn.SiLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip
    yield from classified(model)


@task("CIFAR: batch normalization in training and evaluation, mixup, label smoothing")
def cifar_tricks():
    model = settle(nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2),
        nn.Flatten(), nn.Linear(32, 10),
    ))  # fmt: skip
    x, y, share = draw(16, 3, 16, 16), choose(10, 16), 0.3
    mixed, other = share * x + (1 - share) * x.flip(0), y.flip(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.2, total_steps=5)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    for step in range(4):
        made = model(mixed)
        loss = share * criterion(made, y) + (1 - share) * criterion(made, other)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        yield f"loss {step}", loss.item()
    yield "running", model[1].running_mean
    yield "evaluated", model.eval()(x)


@task("imagenet --dummy: a training loop with meters and checkpoints")
def imagenet():
    import tempfile

    model = settle(nn.Sequential(
        nn.Conv2d(3, 16, 7, 4, 3), norm(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1), Block(16, 32, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 100),
    ))  # fmt: skip
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    images, target = draw(4, 3, 64, 64), choose(100, 4)
    for step in range(2):
        output = model(images)
        loss = nn.functional.cross_entropy(output, target)
        _, best = output.topk(5, 1, True, True)
        correct = best.t().eq(target.view(1, -1).expand_as(best.t()))
        yield f"top5 {step}", correct[:5].reshape(-1).float().sum(0, keepdim=True).item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield f"loss {step}", loss.item()
    with tempfile.TemporaryDirectory() as folder:
        state = {"epoch": 1, "state_dict": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state, "scheduler": schedule.state_dict()}, f"{folder}/checkpoint.pth.tar")
        loaded = torch.load(f"{folder}/checkpoint.pth.tar", map_location="cpu")
        model.load_state_dict(loaded["state_dict"])
        optimizer.load_state_dict(loaded["optimizer"])
    yield "after", model.eval()(images)


@task("siamese network: pairs of digits, binary cross entropy")
def siamese():
    class Siamese(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Conv2d(1, 8, 5, 2), nn.ReLU(), nn.Flatten())
            self.head = nn.Sequential(nn.Linear(2304, 16), nn.ReLU(inplace=True), nn.Linear(16, 1))

        def forward(self, a, b):
            return torch.sigmoid(self.head(torch.cat((self.body(a), self.body(b)), 1)))

    model, a, b = settle(Siamese()), draw(4, 1, 28, 28), draw(4, 1, 28, 28, seed=1)
    y = torch.tensor([1.0, 0, 0, 1])
    optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
    yield from steps(model, lambda: F.binary_cross_entropy(model(a, b).squeeze(), y), optimizer)


@task("triplet and contrastive losses, SimCLR's NT-Xent")
def contrastive():
    model = settle(nn.Sequential(nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 8)))
    a, b, c = draw(6, 12), draw(6, 12, seed=1), draw(6, 12, seed=2)

    def loss():
        near, far = F.normalize(model(a)), F.normalize(model(b))
        both = torch.cat([near, far])
        similar = both @ both.t() / 0.5
        similar = similar.masked_fill(torch.eye(12, dtype=torch.bool), float("-inf"))
        pairs = (torch.arange(12) + 6) % 12
        triplet = nn.TripletMarginLoss(0.5)(model(a), model(b), model(c))
        return F.cross_entropy(similar, pairs) + triplet

    yield from steps(model, loss, torch.optim.Adam(model.parameters(), lr=0.01))


@task("super-resolution by sub-pixel convolution")
def super_resolution():
    model = settle(nn.Sequential(
        nn.Conv2d(1, 16, 5, 1, 2), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU(),
        nn.Conv2d(16, 9, 3, 1, 1), nn.PixelShuffle(3),
    ))  # fmt: skip
    x, y = draw(2, 1, 16, 16), draw(2, 1, 48, 48)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    yield from steps(model, lambda: F.mse_loss(model(x), y), optimizer)


@task("neural style: an image is optimized by LBFGS on Gram matrices")
def neural_style():
    net = settle(nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3)))
    net.requires_grad_(False)
    content, style = draw(1, 3, 16, 16).sigmoid(), draw(1, 3, 16, 16, seed=1).sigmoid()

    def gram(x):
        a, b, c, d = x.size()
        features = x.view(a * b, c * d)
        return torch.mm(features, features.t()).div(a * b * c * d)

    wanted, look = net(content), gram(net(style))
    image = content.clone().requires_grad_(True)
    optimizer, losses = torch.optim.LBFGS([image], max_iter=5), []

    def closure():
        with torch.no_grad():
            image.clamp_(0, 1)
        optimizer.zero_grad()
        made = net(image)
        loss = F.mse_loss(made, wanted) + 1e2 * F.mse_loss(gram(made), look)
        loss.backward()
        losses.append(loss.item())
        return loss

    optimizer.step(closure)
    yield "losses", losses[:4]


@task("fast neural style: a transformer network with instance norms and reflection pads")
def fast_style():
    class Up(nn.Module):
        def __init__(self):
            super().__init__()
            self.pad, self.conv = nn.ReflectionPad2d(1), nn.Conv2d(16, 8, 3)

        def forward(self, x):
            return self.conv(self.pad(F.interpolate(x, mode="nearest", scale_factor=2)))

    model = settle(nn.Sequential(
        nn.ReflectionPad2d(4), nn.Conv2d(3, 8, 9), nn.InstanceNorm2d(8, affine=True), nn.ReLU(),
        nn.ReflectionPad2d(1), nn.Conv2d(8, 16, 3, 2), nn.InstanceNorm2d(16, affine=True),
        nn.ReLU(), Up(), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.Conv2d(8, 3, 1),
    ))  # fmt: skip
    x = draw(1, 3, 24, 24)

    def loss():
        made = model(x)
        tv = (made[..., 1:] - made[..., :-1]).abs().mean() + (
            made[..., 1:, :] - made[..., :-1, :]
        ).abs().mean()
        return F.mse_loss(made, x) + 0.1 * tv

    yield from steps(model, loss, torch.optim.Adam(model.parameters(), 1e-3))


@task("U-Net: skips, transposed convolutions, dice and cross entropy")
def unet():
    def double(a, b):
        return nn.Sequential(nn.Conv2d(a, b, 3, padding=1), norm(b), nn.ReLU(inplace=True),
                             nn.Conv2d(b, b, 3, padding=1), norm(b),
                             nn.ReLU(inplace=True))  # fmt: skip

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.inc, self.down = double(3, 8), double(8, 16)
            self.up, self.out = nn.ConvTranspose2d(16, 8, 2, stride=2), double(16, 8)
            self.head = nn.Conv2d(8, 2, 1)

        def forward(self, x):
            first = self.inc(x)
            up = self.up(self.down(F.max_pool2d(first, 2)))
            dy, dx = first.size(2) - up.size(2), first.size(3) - up.size(3)
            up = F.pad(up, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            return self.head(self.out(torch.cat([first, up], dim=1)))

    model, x, y = settle(UNet()), draw(1, 3, 25, 30), choose(2, 1, 25, 30)

    def loss():
        made = model(x)
        chance, truth = made.softmax(1), F.one_hot(y, 2).permute(0, 3, 1, 2).float()
        inner = 2 * (chance * truth).sum(dim=(-1, -2))
        dice = (inner + 1e-6) / ((chance + truth).sum(dim=(-1, -2)) + 1e-6)
        return F.cross_entropy(made, y) + 1 - dice.mean()

    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-4, momentum=0.9, foreach=True)
    yield from steps(model, loss, optimizer)


@task("YOLO: its blocks, anchors' grid, box loss and suppression")
def yolo():
    def conv(a, b, k=1, s=1):
        return nn.Sequential(
            nn.Conv2d(a, b, k, s, k // 2, bias=False), norm(b), nn.SiLU(inplace=True)
        )

    class C3(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.a, self.b = conv(width, width // 2), conv(width, width // 2)
            self.inner = nn.Sequential(
                conv(width // 2, width // 2), conv(width // 2, width // 2, 3)
            )
            self.out = conv(width, width)

        def forward(self, x):
            a = self.a(x)
            return self.out(torch.cat((a + self.inner(a), self.b(x)), 1))

    class SPPF(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.a, self.b = conv(width, width // 2), conv(width * 2, width)

        def forward(self, x):
            x = self.a(x)
            y = F.max_pool2d(x, 5, 1, 2)
            z = F.max_pool2d(y, 5, 1, 2)
            return self.b(torch.cat((x, y, z, F.max_pool2d(z, 5, 1, 2)), 1))

    model = settle(nn.Sequential(
        conv(3, 8, 6, 2), conv(8, 16, 3, 2), C3(16), conv(16, 32, 3, 2), SPPF(32),
        nn.Conv2d(32, 3 * 7, 1)
    ))  # fmt: skip
    x, anchors = draw(1, 3, 62, 62), torch.tensor([[10.0, 13], [16, 30], [33, 23]]) / 8
    truth = draw(1, 4, seed=5).sigmoid() * 4

    def decoded():
        made = model(x)
        n, _, h, w = made.shape
        made = made.view(n, 3, 7, h, w).permute(0, 1, 3, 4, 2).contiguous()
        yv, xv = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        grid = torch.stack((xv, yv), 2).expand(1, 3, h, w, 2).float()
        xy = (made[..., 0:2].sigmoid() * 2 - 0.5 + grid) * 8
        wh = (made[..., 2:4].sigmoid() * 2) ** 2 * anchors.view(1, 3, 1, 1, 2)
        return torch.cat((xy, wh, made[..., 4:].sigmoid()), 4).view(n, -1, 7)

    def loss():
        made = decoded()
        box = F.smooth_l1_loss(made[0, :8, :4], truth.expand(8, 4))
        objects = F.binary_cross_entropy(made[..., 4], torch.zeros_like(made[..., 4]))
        return box + objects

    yield from steps(model, loss, torch.optim.SGD(model.parameters(), 1e-3, momentum=0.937))
    with torch.no_grad():
        made = decoded()[0]
        keep = made[made[:, 4] > made[:, 4].median()]
        yield "kept", keep.shape[0]
        order = keep[:, 4].argsort(descending=True)
        yield "best", keep[order[:5]]


@task("DETR's matching and set loss on a small transformer")
def detr():
    from scipy.optimize import linear_sum_assignment

    net = settle(nn.ModuleDict({
        "t": nn.Transformer(16, 2, 1, 1, 32, dropout=0.0, batch_first=True),
        "box": nn.Linear(16, 4), "cls": nn.Linear(16, 4), "q": nn.Embedding(5, 16),
    }))  # fmt: skip
    x, truth, labels = draw(2, 9, 16), draw(2, 2, 4).sigmoid(), choose(3, 2, 2)

    def loss():
        states = net["t"](x, net["q"].weight.unsqueeze(0).repeat(2, 1, 1))
        boxes, classes = net["box"](states).sigmoid(), net["cls"](states)
        total = 0
        for k in range(2):
            cost = torch.cdist(boxes[k], truth[k], p=1) - classes[k].softmax(-1)[:, labels[k]]
            rows, columns = linear_sum_assignment(cost.detach().numpy())
            rows, columns = torch.as_tensor(rows), torch.as_tensor(columns)
            wanted = torch.full((5,), 3)
            wanted[rows] = labels[k][columns]
            total = (
                total
                + F.cross_entropy(classes[k], wanted)
                + F.l1_loss(boxes[k][rows], truth[k][columns])
            )
        return total

    yield from steps(net, loss, torch.optim.AdamW(net.parameters(), lr=1e-4))


@task("ViT written by hand, with patches by unfold and a class token")
def vit():
    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch, self.token = nn.Linear(48, 32), nn.Parameter(torch.zeros(1, 1, 32))
            self.place = nn.Parameter(torch.zeros(1, 65, 32))
            layer = nn.TransformerEncoderLayer(
                32, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 10))

        def forward(self, x):
            x = F.unfold(x, 4, stride=4).transpose(1, 2)
            x = torch.cat((self.token.expand(x.size(0), -1, -1), self.patch(x)), 1) + self.place
            return self.head(self.body(x)[:, 0])

    yield from classified(ViT(), make=torch.optim.AdamW, lr=1e-3)


@task("MLP-Mixer and ConvMixer")
def mixers():
    class Mix(nn.Module):
        def __init__(self):
            super().__init__()
            self.n1, self.n2 = nn.LayerNorm(16), nn.LayerNorm(16)
            self.tokens = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
            self.channels = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

        def forward(self, x):
            x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
            return x + self.channels(self.n2(x))

    class Mean(nn.Module):
        def forward(self, x):
            return x.mean(1)

    patches = nn.Sequential(nn.Conv2d(3, 16, 8, 8), nn.Flatten(2), nn.Sequential())

    class Swap(nn.Module):
        def forward(self, x):
            return x.transpose(1, 2)

    yield from classified(nn.Sequential(patches, Swap(), Mix(), Mix(), Mean(), nn.Linear(16, 10)))
    conv = nn.Sequential(
        nn.Conv2d(3, 16, 4, 4), nn.GELU(), norm(16),
        nn.Conv2d(16, 16, 5, groups=16, padding="same"),
        nn.GELU(), nn.Conv2d(16, 16, 1), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(),
        nn.Linear(16, 10),
    )  # fmt: skip
    for name, value in classified(conv):
        yield f"ConvMixer {name}", value


@task("spatial transformer network")
def spatial_transformer():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.where = nn.Sequential(nn.Conv2d(1, 4, 7), nn.MaxPool2d(2, 2), nn.ReLU(True))
            self.fc = nn.Linear(4 * 11 * 11, 6)
            self.head = nn.Linear(784, 10)

        def forward(self, x):
            theta = self.fc(self.where(x).flatten(1)).view(-1, 2, 3) * 0.1
            theta = theta + torch.tensor([[1.0, 0, 0], [0, 1, 0]])
            grid = F.affine_grid(theta, x.size(), align_corners=False)
            return self.head(F.grid_sample(x, grid, align_corners=False).flatten(1))

    yield from classified(Net(), size=28, channels=1)


@task("adversarial examples by FGSM; saliency and Grad-CAM through hooks")
def adversarial():
    model = settle(nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(),
        nn.Linear(128, 10)
    )).eval()  # fmt: skip
    x, y = draw(2, 1, 14, 14).sigmoid().requires_grad_(), choose(10, 2)
    kept = {}
    model[0].register_forward_hook(lambda m, i, o: kept.__setitem__("a", o))
    model[0].register_full_backward_hook(lambda m, i, o: kept.__setitem__("g", o[0]))
    loss = F.nll_loss(F.log_softmax(model(x), 1), y)
    model.zero_grad()
    loss.backward()
    yield "attacked", model(torch.clamp(x + 0.1 * x.grad.data.sign(), 0, 1))
    weights = kept["g"].mean(dim=(2, 3), keepdim=True)
    yield "cam", F.relu((weights * kept["a"]).sum(1))
