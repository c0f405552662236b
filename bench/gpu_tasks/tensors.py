"""Work on tensors: positions, orders, scans, products, transforms, decompositions, moves."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any

from . import Step, choose, draw, program, settle


@program("masks, positions and writes", 1e-5)
def indexing(torch: Any, device: str) -> Step:
    x, rows = draw(torch, 64, 48).to(device), choose(torch, 64, 20).to(device)
    columns = choose(torch, 48, 20, seed=1).to(device)

    def step() -> Any:
        y = x.clone()
        y[y < -1] = 0.0
        y[:, ::3] *= 2
        y[rows, columns] = 5.0
        y.index_put_((rows, columns), torch.ones(20, device=device), accumulate=True)
        y[3:9, 5] = torch.arange(6.0, device=device)
        added = torch.zeros(64, device=device).scatter_add_(0, rows, columns.float())
        rolled = torch.roll(y, (3, -2), (0, 1)).flip(0)
        return {
            "written": y,
            "masked": x[x > 0.5],
            "rows": x[rows],
            "several": x[rows[:5, None], columns[None, :7]],
            "gathered": x.gather(1, (columns[:, None] % 48).expand(20, 3)),
            "taken": torch.take_along_dim(x, x.argsort(1), dim=1),
            "added": added,
            "reduced": torch.zeros(64, 48, device=device).index_add(0, rows, x[:20]),
            "extremes": torch.zeros(8, device=device).scatter_reduce(
                0, rows % 8, columns.float(), "amax"
            ),
            "chosen": torch.where(x > 0, x, -x),
            "filled": x.masked_fill(x.abs() < 0.1, float("-inf")).amax(1),
            "rolled": rolled,
            "triangle": torch.tril(x[:48, :48], -1),
            "selected": torch.masked_select(x, x > 1.5),
            "corner": x[..., -1][None, ::5],
        }

    return step


@program("sort, topk, unique, nonzero, searches and counts", 1e-5)
def orders(torch: Any, device: str) -> Step:
    x, ids = draw(torch, 32, 200).to(device), choose(torch, 40, 500).to(device)

    def step() -> Any:
        unique, inverse, counts = torch.unique(ids, return_inverse=True, return_counts=True)
        return {
            "sorted": torch.sort(x, dim=1, descending=True),
            "stable": torch.sort(ids, stable=True),
            "top": x.topk(5, dim=-1),
            "least": x.topk(3, largest=False),
            "unique": (unique, inverse, counts),
            "consecutive": torch.unique_consecutive(ids.sort().values),
            "nonzero": torch.nonzero(x > 1.5),
            "where": torch.where(ids == 7),
            "kth": x.kthvalue(10, dim=1),
            "median": x.median(dim=1),
            "quantile": torch.quantile(x, torch.tensor([0.1, 0.5, 0.9], device=device), dim=1),
            "mode": (ids % 3).mode().values,
            "bins": torch.bincount(ids, minlength=45),
            "histogram": torch.histc(x, bins=12, min=-3, max=3),
            "search": torch.searchsorted(unique, ids),
            "buckets": torch.bucketize(x[0], torch.linspace(-2, 2, 9, device=device)),
            "any": ((x > 3).any(1), (x > -9).all(), x.argmin(1), torch.isin(ids, unique[:4])),
        }

    return step


@program("running sums, products and extrema, long rows", 1e-3)
def scans(torch: Any, device: str) -> Step:
    x, ids = draw(torch, 16, 5000).to(device), choose(torch, 9, 16, 5000).to(device)

    def step() -> Any:
        return {
            "cumsum": x.cumsum(1),
            "rows": x.cumsum(0),
            "whole": ids.cumsum(1),
            "cumprod": (1 + 0.001 * x).cumprod(1),
            "cummax": x.cummax(1),
            "cummin": x.cummin(0),
            "logcumsumexp": x.logcumsumexp(1),
            "diff": x.diff(dim=1),
            "moments": (x.mean(1), x.std(1), x.var(), x.logsumexp(1), x.norm(dim=1), x.prod(0)),
        }

    return step


@program("einsum, matmul with batches and broadcasting", 1e-3)
def products(torch: Any, device: str) -> Step:
    a, b = draw(torch, 8, 33, 64).to(device), draw(torch, 8, 64, 17, seed=1).to(device)
    q, k = draw(torch, 2, 4, 30, 16).to(device), draw(torch, 2, 4, 50, 16, seed=1).to(device)

    def step() -> Any:
        return {
            "batches": a @ b,
            "one": a @ b[0],
            "vector": a @ b[0, :, 0],
            "einsum": torch.einsum("bij,bjk->ik", a, b),
            "scores": torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1),
            "outer": torch.einsum("i,j->ij", a[0, :, 0], b[0, :, 0][:20]),
            "trace": torch.einsum("ii->", a[0, :, :33]),
            "tensordot": torch.tensordot(a, b, dims=([0, 2], [0, 1])),
            "baddbmm": torch.baddbmm(torch.ones(8, 1, 17, device=device), a, b, beta=0.5),
            "kron": torch.kron(a[0, :3, :3], b[0, :2, :2]),
            "distances": torch.cdist(a[:, :, :8], a[:, :5, :8]),
            "halves": (a.bfloat16() @ b.bfloat16()).float() / 64,
            "bilinear": torch.nn.functional.cosine_similarity(q, k[:, :, :30], dim=-1),
        }

    return step


@program("FFT: filters, spectra, shifts", 1e-3)
def transforms(torch: Any, device: str) -> Step:
    signal, image = draw(torch, 8, 512).to(device), draw(torch, 3, 48, 60).to(device)
    window = torch.hann_window(128, device=device)

    def step() -> Any:
        spectrum = torch.fft.rfft(signal)
        spectrum[:, 100:] = 0
        found = torch.stft(signal, 128, 32, window=window, return_complex=True)
        return {
            "filtered": torch.fft.irfft(spectrum, n=512),
            "fft2": torch.fft.fft2(image),
            "shifted": torch.fft.fftshift(torch.fft.fft2(image).abs(), dim=(-2, -1)),
            "odd": torch.fft.fft(signal[:, :125]),
            "power": spectrum.abs().square().sum(1),
            "angle": torch.view_as_real(spectrum[:, 1:9]),
            "stft": found,
            "back": torch.istft(found, 128, 32, window=window),
            "frequencies": torch.fft.rfftfreq(512, device=device),
        }

    return step


@program("linalg: solve, Cholesky, SVD, QR, eigenvalues", 5e-3)
def decompositions(torch: Any, device: str) -> Step:
    a, b = draw(torch, 4, 24, 24).to(device), draw(torch, 4, 24, 3, seed=1).to(device)

    def step() -> Any:
        spd = a @ a.mT + 24 * torch.eye(24, device=device)
        lower = torch.linalg.cholesky(spd)
        u, s, vh = torch.linalg.svd(a[:, :, :10], full_matrices=False)
        q, r = torch.linalg.qr(a[:, :, :6])
        values, vectors = torch.linalg.eigh(spd)
        return {
            "solve": torch.linalg.solve(spd, b),
            "cholesky": lower,
            "by it": torch.cholesky_solve(b, lower),
            "inverse": torch.linalg.inv(spd),
            "determinant": torch.linalg.slogdet(spd),
            "singular": s,
            "again": (u * s[:, None]) @ vh,
            "qr": (q @ r, r.abs()),
            "eigenvalues": values,
            "projected": (vectors * values[:, None]) @ vectors.mT,
            "triangular": torch.linalg.solve_triangular(lower, b, upper=False),
            "least squares": torch.linalg.lstsq(a[:, :, :6], b).solution,
            "norms": (torch.linalg.norm(a, dim=(1, 2)), torch.linalg.matrix_norm(a, 2)),
            "power": torch.linalg.matrix_power(spd / 50, 3),
            "pinv": torch.linalg.pinv(a[:, :, :6]),
            "exp": torch.linalg.matrix_exp(a / 10),
        }

    return step


@program("gradients through linalg and FFT", 5e-3)
def through(torch: Any, device: str) -> Step:
    a = draw(torch, 3, 12, 12).to(device).requires_grad_()
    b = draw(torch, 3, 12, seed=1).to(device)

    def step() -> Any:
        a.grad = None
        spd = a @ a.mT + 12 * torch.eye(12, device=device)
        loss = torch.linalg.solve(spd, b).square().sum() + torch.logdet(spd).sum()
        loss = loss + torch.linalg.svdvals(a)[:, 0].sum() + torch.linalg.cholesky(spd).sum()
        loss = loss + torch.fft.rfft(a).abs().sum()
        loss.backward()
        return loss, a.grad

    return step


@program("sparse embedding with SparseAdam, sparse products", 2e-3)
def sparse(torch: Any, device: str) -> Step:
    nn = torch.nn
    embedding = settle(torch, nn.Embedding(1000, 16, sparse=True)).to(device)
    bag = settle(torch, nn.EmbeddingBag(100, 16, mode="mean")).to(device)
    head = settle(torch, nn.Linear(16, 4)).to(device)
    optimizers = [
        torch.optim.SparseAdam(embedding.parameters(), lr=1e-2),
        torch.optim.Adam([*bag.parameters(), *head.parameters()], lr=1e-2),
    ]
    ids, y = choose(torch, 1000, 32, 5).to(device), choose(torch, 4, 32).to(device)
    places = torch.stack([choose(torch, 32, 60), choose(torch, 32, 60, seed=1)])
    graph = torch.sparse_coo_tensor(places, draw(torch, 60), (32, 32)).to(device).coalesce()

    def step() -> Any:
        h = embedding(ids).mean(1) + bag(ids % 100)
        loss = nn.functional.cross_entropy(head(torch.sparse.mm(graph, h) + h), y)
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.item(), embedding.weight, graph.to_dense()

    return step


@program("seeded random numbers: repeated, and their moments", 0.05)
def random(torch: Any, device: str) -> Step:
    def step() -> Any:
        generator = torch.Generator(device=device).manual_seed(3)
        first = torch.randn(4, 5000, generator=generator, device=device)
        generator.manual_seed(3)
        again = torch.randn(4, 5000, generator=generator, device=device)
        torch.manual_seed(7)
        a, state = torch.rand(20_000, device=device), torch.get_rng_state()
        torch.manual_seed(7)
        b = torch.rand(20_000, device=device)
        torch.set_rng_state(state)
        order = torch.randperm(1000, device=device)
        drawn = torch.multinomial(torch.tensor([0.1, 0.2, 0.7], device=device), 20_000, True)
        dropped = torch.nn.functional.dropout(torch.ones(20_000, device=device), 0.25)
        return {
            "repeated": (torch.equal(first, again), torch.equal(a, b), torch.equal(first[0], a)),
            "normal": (1 + first.mean(), first.std()),
            "uniform": (a.mean(), a.std()),
            "order": order.sort().values,
            "drawn": torch.bincount(drawn, minlength=3) / 20_000.0,
            "dropped": (dropped.mean(), dropped.max()),
            "bernoulli": torch.bernoulli(torch.full((20_000,), 0.3, device=device)).mean(),
            "whole": 1 <= int(torch.randint(1, 5, (999,), device=device).min()) < 5,
            "filled": torch.empty(20_000, device=device).exponential_(2.0).mean(),
        }

    return step


@program("tensors of CPU and GPU mixed, and what must raise", 1e-5)
def mixed(torch: Any, device: str) -> Step:
    x, host = draw(torch, 16, 8).to(device), draw(torch, 16, 8, seed=1)

    def attempt(work: Any) -> str:
        try:
            work()
        except Exception as error:
            return type(error).__name__
        return "nothing"

    def step() -> Any:
        y = x * torch.tensor(2.0)  # a number of the CPU goes anywhere
        back = (y.cpu() + host).to(x)
        back[0] = host[0].to(device)
        x2 = x.to("cpu").to(device, torch.float64).half().float()
        picked = x[torch.tensor([1, 3])]  # positions of the CPU
        both = torch.empty_like(host).copy_(x) + host
        return {
            "back": back,
            "types": x2,
            "picked": picked,
            "both": both,
            "sum": attempt(lambda: x + host),
            "product": attempt(lambda: x @ host.T),
            "layer": attempt(lambda: torch.nn.Linear(8, 2)(x)),
            "numpy": attempt(lambda: x.numpy()),
            "cat": attempt(lambda: torch.cat([x, host])),
            "device": str(x.device.type),
            "same": x.to(device) is x,
            "listed": x[0].tolist(),
            "made": torch.zeros_like(x).device == x.device and x.new_ones(2).device == x.device,
        }

    return step


@program("dtypes: halves, whole numbers, booleans, complex, overflow and NaN", 1e-3)
def dtypes(torch: Any, device: str) -> Step:
    x, ids = draw(torch, 33, 20).to(device), choose(torch, 200, 33, 20).to(device)

    def step() -> Any:
        small = ids.to(torch.uint8)
        odd = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e-40, 3.5, -2.5])
        odd = odd.to(device)
        z = torch.complex(x, x.flip(1))
        return {
            "bytes": (small + small, small * 3, ~small, small >> 2, small ^ 5),
            "divided": (ids // 7, ids % 7, -ids // 7, torch.fmod(-ids, 7), ids / 7),
            "halves": (x.half() * 3).float(),
            "sums": (
                x.bfloat16().sum(0).float(),
                small.sum(),
                (x > 0).sum(1),
                (x > 0).float().mean(),
            ),
            "odd": (odd.exp(), odd.sqrt(), odd.round(), odd.sign(), odd.isnan(), odd.nan_to_num()),
            "clamped": (odd.clamp(-1, 1), odd.abs(), torch.maximum(odd, -odd), 1 / odd),
            "doubles": x.double().sin().pow(2),
            "complex": (z * z.conj(), z.abs(), z.exp().real, torch.polar(x.abs(), x)),
            "casts": (x.to(torch.int32), x.to(torch.int8), (x * 50).to(torch.bool)),
            "special": (torch.erf(x), torch.lgamma(x.abs() + 1), torch.special.i0(x), x.erfinv()),
            "mixed": (small + x.half()).dtype == torch.float16,
            "long": 2**40 + ids * 3,
        }

    return step


@program("views, strides, in-place writes seen by all", 1e-5)
def views(torch: Any, device: str) -> Step:
    x = draw(torch, 12, 10, 8).to(device)

    def step() -> Any:
        y = x.clone()
        t, part = y.transpose(0, 2), y[2:6]
        part.mul_(2)
        t[0].add_(1)
        y.view(12, 80)[:, ::7] = -1
        y.diagonal(dim1=0, dim2=1).fill_(9)
        strided = torch.as_strided(y, (4, 5), (13, 2), 3)
        a, b = y.unbind(0)[:2]
        a.copy_(b)
        first, *_ = y.split([2, 10])
        first.zero_()
        return {
            "y": y,
            "turned": t.contiguous(),
            "strided": strided,
            "windows": y.unfold(1, 4, 3),
            "shape": (list(t.stride()), t.is_contiguous(), y.permute(2, 0, 1).shape[0]),
            "expanded": y[:, :1].expand(-1, 3, -1).reshape(-1)[:40],
            "joined": torch.stack([a, b]).squeeze().unsqueeze(1),
            "blocks": torch.block_diag(y[0, :2, :2], y[1, :3, :1]),
            "meshed": torch.meshgrid(y[0, 0], y[1, 0], indexing="ij")[1],
        }

    return step


@program("pictures: sampled, resized, unfolded, padded, pooled", 2e-3)
def pictures(torch: Any, device: str) -> Step:
    F = torch.nn.functional
    x = draw(torch, 2, 3, 20, 24).to(device).requires_grad_()
    theta = torch.tensor([[[0.9, 0.1, 0.0], [-0.1, 0.9, 0.1]]]).to(device).expand(2, 2, 3)

    def step() -> Any:
        x.grad = None
        grid = F.affine_grid(theta, [2, 3, 20, 24], align_corners=False)
        found = {
            "sampled": F.grid_sample(x, grid, align_corners=False),
            "bilinear": F.interpolate(x, (31, 17), mode="bilinear", align_corners=False),
            "bicubic": F.interpolate(x, scale_factor=2, mode="bicubic"),
            "area": F.interpolate(x, (7, 5), mode="area"),
            "unfolded": F.unfold(x, 3, padding=1, stride=2),
            "folded": F.fold(F.unfold(x, 2, stride=2), (20, 24), 2, stride=2),
            "reflected": F.pad(x, (2, 3, 1, 0), mode="reflect"),
            "circular": F.pad(x, (2, 3, 1, 0), mode="circular"),
            "max": F.max_pool2d(x, 3, 2, padding=1),
            "average": F.adaptive_avg_pool2d(x, (5, 7)),
            "shuffled": F.pixel_unshuffle(x, 2),
            "local": F.local_response_norm(x, 2),
            "instance": F.instance_norm(x),
            "dilated": F.conv2d(x, x.detach()[:, :, :3, :3], dilation=2, padding=2),
            "depthwise": F.conv2d(x, x.detach()[:1, :, :5, :5].transpose(0, 1), groups=3),
        }
        sum(v.square().mean() for v in found.values()).backward()
        return {**{k: v.detach() for k, v in found.items()}, "gradient": x.grad}

    return step


@program("losses and activations, with their gradients", 2e-3)
def losses(torch: Any, device: str) -> Step:
    F = torch.nn.functional
    x = draw(torch, 24, 10).to(device).requires_grad_()
    other, ids = draw(torch, 24, 10, seed=1).to(device), choose(torch, 10, 24).to(device)
    masked = ids.clone()
    masked[::4] = -100
    activations = (
        "relu gelu silu elu selu mish softplus hardswish leaky_relu logsigmoid tanhshrink "
        "hardtanh softsign relu6 celu"
    ).split()

    def step() -> Any:
        x.grad = None
        found = [
            F.cross_entropy(x, masked),
            F.cross_entropy(x, other.softmax(1), weight=other[0].abs()),
            F.nll_loss(x.log_softmax(1), ids),
            F.kl_div(x.log_softmax(1), other.softmax(1), reduction="batchmean"),
            F.binary_cross_entropy_with_logits(x, other.sigmoid(), pos_weight=other[0].abs()),
            F.smooth_l1_loss(x, other),
            F.l1_loss(x, other),
            F.hinge_embedding_loss(x, other.sign()),
            F.margin_ranking_loss(x[:, 0], x[:, 1], other[:, 0].sign()),
            F.triplet_margin_loss(x, other, other.flip(0)),
            F.cosine_embedding_loss(x, other, other[:, 0].sign()),
            F.multi_margin_loss(x, ids),
            F.ctc_loss(
                x.view(12, 2, 10).log_softmax(-1),
                ids[:6].view(2, 3) % 9 + 1,
                torch.tensor([12, 10]),
                torch.tensor([3, 2]),
            ),
            *(getattr(F, name)(x).mean() for name in activations),
            F.glu(x).mean(),
            F.softmin(x, dim=1)[:, 0].mean(),
            F.normalize(x).sum(),
            F.layer_norm(x, (10,))[:, 2].mean(),
            F.rms_norm(x, (10,))[:, 2].mean(),
        ]
        sum(found).backward()
        return torch.stack(found), x.grad

    return step


@program("saved and loaded: state dicts, map_location, another framework's file", 2e-3)
def saved(torch: Any, device: str) -> Step:
    nn = torch.nn

    def made() -> Any:
        return nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4))

    model = settle(torch, made()).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    x, y = draw(torch, 32, 16).to(device), choose(torch, 4, 32).to(device)

    def train(model: Any, optimizer: Any) -> float:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.item()

    def step() -> Any:
        found = [train(model, optimizer)]
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": 3}
        file = io.BytesIO()
        torch.save(state, file)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.pt")
            torch.save(model, path)
            whole = torch.load(path, map_location="cpu", weights_only=False)
        for place in ("cpu", device):
            file.seek(0)
            read = torch.load(file, map_location=place, weights_only=True)
            weight = read["model"]["0.weight"]
            assert weight.device.type == torch.device(place).type, weight.device
            other = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)).to(
                device
            )
            missing = other.load_state_dict(read["model"], strict=True)
            assert not missing.missing_keys
            again = torch.optim.Adam(other.parameters(), lr=1e-2)
            again.load_state_dict(read["optimizer"])
            found.append(train(other, again))
        return found, whole[0].weight, read["epoch"]

    return step


@program("a file that the other framework wrote", 2e-3, steps=3)
def exchanged(torch: Any, device: str) -> Step:
    """Both sides train, write a file into the folder GPU_PROGRAMS, wait for the other's, and train
    what it holds."""
    import time
    from pathlib import Path

    model = settle(torch, torch.nn.GRU(8, 16, batch_first=True)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x = draw(torch, 8, 9, 8).to(device)

    def train() -> float:
        optimizer.zero_grad()
        loss = model(x)[0].square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    folder, side = Path(os.environ["GPU_PROGRAMS"]), os.environ["GPU_PROGRAMS_SIDE"]
    found = [train(), train()]
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, folder / f"{side}.part")
    os.replace(folder / f"{side}.part", folder / f"{side}.pt")
    other = folder / f"{'torch' if side == 'ours' else 'ours'}.pt"
    if os.environ.get("GPU_PROGRAMS_ALONE"):
        other = folder / f"{side}.pt"
    end = time.monotonic() + 90
    while not other.exists():
        assert time.monotonic() < end, "the other side wrote no file"
        time.sleep(0.1)
    read = torch.load(other, map_location=device, weights_only=True)
    model.load_state_dict(read["model"])
    optimizer.load_state_dict(read["optimizer"])
    return lambda: (found, train(), model.weight_hh_l0)
