"""GPyTorch and BoTorch: exact and variational Gaussian processes, acquisition functions."""

import warnings

import gpytorch
import torch
from task import draw, settle, task

warnings.simplefilter("ignore")
X = torch.linspace(0, 1, 24)
Y = torch.sin(X * 6.3) + draw(24, scale=0.05)


class Exact(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel=None):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(kernel or gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))


def fitted(kernel=None, steps=5):
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = Exact(X, Y, likelihood, kernel)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model.train(), likelihood.train()
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(X), Y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval(), likelihood.eval()
    return model, likelihood, losses


@task("an exact Gaussian process: hyperparameters and predictions")
def exact():
    model, likelihood, losses = fitted()
    yield "losses", losses
    with torch.no_grad(), gpytorch.settings.fast_pred_var():
        made = likelihood(model(torch.linspace(0, 1.2, 9)))
    yield "mean", made.mean
    yield "variance", made.variance
    yield "bounds", made.confidence_region()[0]
    yield "lengthscale", model.kernel.base_kernel.lengthscale


@task("kernels: Matern, periodic, polynomial, products and sums")
def kernels():
    k = gpytorch.kernels
    for kernel in (
        k.MaternKernel(2.5), k.PeriodicKernel(), k.RBFKernel() + k.LinearKernel(),
        k.RBFKernel() * k.PeriodicKernel(), k.RQKernel(), k.PolynomialKernel(2),
    ):  # fmt: skip
        yield (
            type(kernel).__name__ + str(len(list(kernel.parameters()))),
            kernel(X[:6].unsqueeze(1)).to_dense(),
        )
    yield "losses", fitted(k.MaternKernel(1.5))[2]


@task("a variational process with inducing points")
def variational():
    v = gpytorch.variational

    class Sparse(gpytorch.models.ApproximateGP):
        def __init__(self):
            points = torch.linspace(0, 1, 6).unsqueeze(1)
            inner = v.CholeskyVariationalDistribution(6)
            super().__init__(v.VariationalStrategy(self, points, inner))
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean(x), self.kernel(x))

    model, likelihood = Sparse(), gpytorch.likelihoods.GaussianLikelihood()
    model.variational_strategy.variational_params_initialized.fill_(1)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=24)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.05)
    for step in range(4):
        optimizer.zero_grad()
        loss = -objective(model(X.unsqueeze(1)), Y)
        loss.backward()
        optimizer.step()
        yield f"loss {step}", loss.item()
    model.eval()
    yield "mean", model(X[:5].unsqueeze(1)).mean


@task("several outputs, and classes by a Bernoulli likelihood")
def multitask():
    likelihood = gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)

    class Pair(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(X, torch.stack([Y, -Y], 1), likelihood)
            self.mean = gpytorch.means.MultitaskMean(gpytorch.means.ConstantMean(), 2)
            self.kernel = gpytorch.kernels.MultitaskKernel(gpytorch.kernels.RBFKernel(), 2, rank=1)
            settle(self.kernel.task_covar_module)

        def forward(self, x):
            return gpytorch.distributions.MultitaskMultivariateNormal(self.mean(x), self.kernel(x))

    model = Pair()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    model.train(), likelihood.train()
    loss = -objective(model(X), torch.stack([Y, -Y], 1))
    loss.backward()
    yield "loss", loss.item()
    model.eval(), likelihood.eval()
    yield "mean", likelihood(model(X[:4])).mean


@task("BoTorch: a process is fitted, acquisition functions at points", tolerance=2e-2)
def acquisition():
    from botorch.acquisition import ExpectedImprovement, UpperConfidenceBound, qExpectedImprovement
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.sampling import SobolQMCNormalSampler

    x, y = X.double().unsqueeze(1), Y.double().unsqueeze(1)
    model = SingleTaskGP(x, y)
    fit_gpytorch_mll(gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model))
    points = torch.linspace(0, 1, 7).double().view(7, 1, 1)
    yield "UCB", UpperConfidenceBound(model, beta=0.2)(points)
    yield "EI", ExpectedImprovement(model, best_f=y.max())(points)
    sampler = SobolQMCNormalSampler(torch.Size([256]), seed=1)
    yield "qEI", qExpectedImprovement(model, best_f=y.max(), sampler=sampler)(points)
    yield "posterior", model.posterior(points.squeeze(1)).mean


@task("BoTorch: the best point by gradients from given starts", tolerance=2e-2)
def optimized():
    from botorch.acquisition import UpperConfidenceBound
    from botorch.generation import gen_candidates_scipy
    from botorch.models import SingleTaskGP

    x = X.double().unsqueeze(1)
    model = SingleTaskGP(x, Y.double().unsqueeze(1))
    model.eval()
    starts = torch.tensor([[[0.1]], [[0.6]]]).double()
    found, values = gen_candidates_scipy(
        starts, UpperConfidenceBound(model, beta=0.1), lower_bounds=0.0, upper_bounds=1.0
    )
    yield "points", found
    yield "values", values
