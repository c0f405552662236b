"""torchdiffeq, torchsde, torchcde, Pyro, zuko, nflows, normflows, geomloss, entmax, pytorch-crf."""

import torch
from task import choose, draw, gradients, settle, task
from training import steps


@task("torchdiffeq: a neural equation by dopri5 and rk4, gradients by the adjoint, an event")
def ordinary():
    from torchdiffeq import odeint, odeint_adjoint, odeint_event

    net = settle(
        torch.nn.Sequential(torch.nn.Linear(2, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    )
    start, times = draw(5, 2), torch.linspace(0, 1, 4)

    class Slope(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, t, y):
            return self.net(y) * (1 + t)

    slope = Slope()
    for method in ("dopri5", "rk4", "midpoint", "adaptive_heun"):
        yield method, odeint(slope, start, times, method=method, rtol=1e-3, atol=1e-4)
    odeint_adjoint(slope, start, times, rtol=1e-4, atol=1e-5).square().mean().backward()
    yield "gradients by the adjoint", gradients(net)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    yield from steps(
        net, lambda: odeint(slope, start, times, method="rk4").square().mean(), optimizer
    )
    fall = lambda t, y: torch.stack([y[1], torch.full_like(y[1], -9.8)])  # noqa: E731
    height = torch.tensor([10.0, 0.0])
    time, _ = odeint_event(fall, height, torch.tensor(0.0), event_fn=lambda t, y: y[0], atol=1e-6)
    yield "falls until", time


@task("torchsde: Euler and Milstein on a path that is given")
def stochastic():
    import torchsde

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.spread = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def f(self, t, y):
            return torch.tanh(self.drift(y))

        def g(self, t, y):
            return torch.sigmoid(self.spread(y)) * 0.3

    class Path(torchsde.BaseBrownian):
        shape, dtype, device, levy_area_approximation = (4, 3), torch.float32, "cpu", "none"

        def size(self):
            return self.shape

        def __repr__(self):
            return "Path()"

        def __call__(self, ta, tb=None, return_U=False, return_A=False):
            seed = round(float(ta) * 1000)
            return draw(4, 3, seed=seed) * float(tb - ta) ** 0.5

    equation, times = settle(Equation()), torch.linspace(0, 1, 5)
    start = draw(4, 3)
    for method in ("euler", "milstein"):
        made = torchsde.sdeint(equation, start, times, bm=Path(), dt=0.125, method=method)
        yield method, made
    made[-1].square().mean().backward()
    yield "gradients", gradients(equation)


@task("Pyro: a regression by SVI, its traces, NUTS' potential, a Gaussian process")
def pyro_models():
    import pyro
    import pyro.contrib.gp
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.mcmc.util import initialize_model

    pyro.clear_param_store()
    x, y = draw(30), draw(30, seed=1) * 0.1 + 2 * draw(30)

    def model(x, y=None):
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        spread = pyro.param("spread", torch.tensor(0.5), constraint=dist.constraints.positive)
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Normal(slope * x, spread), obs=y)

    def guide(x, y=None):
        pyro.sample("slope", dist.Delta(pyro.param("at", torch.tensor(0.1))))

    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    yield "losses", [svi.step(x, y) for _ in range(6)]
    yield "parameters", {k: v for k, v in sorted(pyro.get_param_store().items())}
    trace = pyro.poutine.trace(pyro.condition(model, {"slope": torch.tensor(1.5)})).get_trace(x, y)
    yield "log density", trace.log_prob_sum()
    yield "names", list(trace.nodes)
    _, potential, _, _ = initialize_model(
        model, (x, y), initial_params={"slope": torch.tensor(0.3)}
    )
    yield "potential", potential({"slope": torch.tensor(0.3)})
    kernel = pyro.contrib.gp.kernels.RBF(input_dim=1, variance=torch.tensor(1.5))
    process = pyro.contrib.gp.models.GPRegression(x, y, kernel, noise=torch.tensor(0.2))
    with torch.no_grad():
        mean, variance = process(torch.linspace(-1, 1, 5))
    yield "process", [mean, variance]
    yield (
        "mixture",
        dist.MixtureSameFamily(
            dist.Categorical(logits=draw(3)), dist.Normal(draw(3), draw(3).exp())
        ).log_prob(x),
    )


@task("zuko and nflows: normalizing flows' densities, inverses and training")
def flows():
    import zuko
    from nflows import distributions, flows, transforms

    x = draw(16, 3)
    for made in (zuko.flows.MAF(3, transforms=2), zuko.flows.NSF(3, transforms=1)):
        flow = settle(made)
        optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
        name = type(flow).__name__
        for what, value in steps(flow, lambda f=flow: -f().log_prob(x).mean(), optimizer):
            yield f"{name} {what}", value
        there = flow().transform(x)
        yield f"{name} back", (flow().transform.inv(there) - x).abs().max() < 1e-3
    layers = [
        transforms.ReversePermutation(3),
        transforms.MaskedAffineAutoregressiveTransform(3, hidden_features=8),
        transforms.LULinear(3),
    ]
    flow = flows.Flow(transforms.CompositeTransform(layers), distributions.StandardNormal([3]))
    flow = settle(flow)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    yield from steps(flow, lambda: -flow.log_prob(x).mean(), optimizer)


@task("entmax and pytorch-crf: sparse softmax, a sequence's likelihood and best path")
def structures():
    import entmax
    from torchcrf import CRF

    x = draw(4, 7).requires_grad_()
    for function in (entmax.sparsemax, entmax.entmax15):
        made = function(x, -1)
        yield function.__name__, made
        (gradient,) = torch.autograd.grad((made * draw(4, 7, seed=1)).sum(), x)
        yield f"{function.__name__} gradient", gradient
    yield "bisected", entmax.entmax_bisect(x, 1.7)
    yield "loss", entmax.entmax15_loss(x, choose(7, 4))
    crf = settle(CRF(5, batch_first=True))
    scores, tags = draw(3, 6, 5).requires_grad_(), choose(5, 3, 6)
    mask = torch.tensor([[1] * 6, [1] * 4 + [0] * 2, [1] * 3 + [0] * 3]).bool()
    likelihood = crf(scores, tags, mask=mask)
    yield "likelihood", likelihood
    (-likelihood).backward()
    yield "gradient", scores.grad
    yield "best", crf.decode(scores, mask=mask)


@task("normflows, geomloss, torchcde: a flow, Sinkhorn divergences, controlled equations")
def more_densities():
    import geomloss
    import normflows
    import torchcde

    x = draw(16, 2)
    layers = []
    for _ in range(2):
        net = normflows.nets.MLP([1, 8, 2], init_zeros=False)
        layers += [
            normflows.flows.AffineCouplingBlock(net),
            normflows.flows.Permute(2, mode="swap"),
        ]
    flow = settle(normflows.NormalizingFlow(normflows.distributions.DiagGaussian(2), layers))
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-2)
    yield from steps(flow, lambda: flow.forward_kld(x), optimizer)
    a, b = draw(12, 3).requires_grad_(), draw(9, 3, seed=1)
    for name in ("sinkhorn", "gaussian", "energy", "laplacian"):
        value = geomloss.SamplesLoss(name, blur=0.3, backend="tensorized")(a, b)
        yield name, [value, torch.autograd.grad(value, a)[0]]
    path = draw(3, 6, 2)
    for name in ("hermite_cubic_coefficients_with_backward_differences", "natural_cubic_coeffs"):
        coefficients = getattr(torchcde, name)(path)
        yield name, coefficients
        spline = torchcde.CubicSpline(coefficients)
        yield f"{name} between", [spline.evaluate(1.5), spline.derivative(2.25)]
    field = settle(torch.nn.Linear(4, 8))

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.field = field

        def forward(self, t, z):
            return self.field(z).tanh().view(*z.shape[:-1], 4, 2)

    made = torchcde.cdeint(
        spline, Field(), draw(3, 4), spline.interval, adjoint=False, method="rk4",
        options={"step_size": 0.5},
    )  # fmt: skip
    yield "controlled", made
    made.square().mean().backward()
    yield "gradients", gradients(field)
