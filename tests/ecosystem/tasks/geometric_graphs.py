"""PyG: GCN, GAT, GraphSAGE and others, sparse adjacencies, batches of graphs, loaders."""

import torch
from task import choose, draw, gradients, settle, task
from torch_geometric import nn as gnn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.utils import (
    add_self_loops,
    degree,
    scatter,
    softmax,
    to_dense_adj,
    to_undirected,
)

EDGES = choose(20, 2, 60)
X, Y = draw(20, 8), choose(3, 20)


def trained(make, steps=3):
    model = settle(make())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for step in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(X, EDGES), Y)
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        optimizer.step()
        yield f"loss {step}", loss.item()
    yield "made", model.eval()(X, EDGES)


class Net(torch.nn.Module):
    def __init__(self, first, second):
        super().__init__()
        self.first, self.second = first, second

    def forward(self, x, edges):
        return self.second(self.first(x, edges).relu(), edges)


@task("GCN, GAT, GraphSAGE: training steps")
def convolutions():
    makers = {
        "GCN": lambda: Net(gnn.GCNConv(8, 16), gnn.GCNConv(16, 3)),
        "GAT": lambda: Net(gnn.GATConv(8, 4, heads=4), gnn.GATConv(16, 3)),
        "SAGE": lambda: Net(gnn.SAGEConv(8, 16), gnn.SAGEConv(16, 3, aggr="max")),
    }
    for name, make in makers.items():
        for what, value in trained(make):
            yield f"{name}: {what}", value


@task("GIN, GATv2, ChebConv, TransformerConv, GraphConv, SGConv, APPNP")
def others():
    layer = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))
    for made in (
        gnn.GINConv(layer, train_eps=True), gnn.GATv2Conv(8, 4, heads=2), gnn.ChebConv(8, 6, K=3),
        gnn.TransformerConv(8, 4, heads=2), gnn.GraphConv(8, 6), gnn.SGConv(8, 6, K=2),
        gnn.APPNP(3, 0.1), gnn.TAGConv(8, 4), gnn.ARMAConv(8, 4),
        gnn.EdgeConv(torch.nn.Linear(16, 5)),
    ):  # fmt: skip
        settle(made)
        yield type(made).__name__, made(X, EDGES)


@task("a sparse adjacency: SparseTensor's place taken by torch.sparse")
def sparse():
    full = torch.sparse_coo_tensor(EDGES.flip(0), torch.ones(60), (20, 20)).coalesce()
    model = settle(gnn.GCNConv(8, 5))
    yield "coo", model(X, full)
    yield "csr", model(X, full.to_sparse_csr())


@task("graphs in batches: pooling and classification")
def batches():
    graphs = [
        Data(draw(4 + k, 8, seed=k), choose(4 + k, 2, 10, seed=k), y=torch.tensor([k % 2]))
        for k in range(6)
    ]
    conv, last = settle(gnn.GCNConv(8, 16)), settle(torch.nn.Linear(16, 2))
    for k, batch in enumerate(DataLoader(graphs, batch_size=3)):
        x = gnn.global_mean_pool(conv(batch.x, batch.edge_index).relu(), batch.batch)
        yield f"loss {k}", torch.nn.functional.cross_entropy(last(x), batch.y).item()
        yield f"most {k}", gnn.global_max_pool(batch.x, batch.batch)
        yield f"sum {k}", gnn.global_add_pool(batch.x, batch.batch)
        yield f"sizes {k}", batch.ptr
    top = settle(gnn.TopKPooling(8, ratio=0.5))
    yield "kept", top(batch.x, batch.edge_index, batch=batch.batch)[0]


@task("utilities: degrees, scatter, softmax, dense adjacencies")
def utilities():
    both = to_undirected(EDGES)
    yield "undirected", both
    yield "loops", add_self_loops(EDGES, num_nodes=20)[0]
    yield "degree", degree(EDGES[0], 20)
    yield "dense", to_dense_adj(EDGES)
    for reduce in ("sum", "mean", "max", "min", "mul"):
        yield reduce, scatter(draw(60, 3), EDGES[0], dim=0, dim_size=20, reduce=reduce)
    yield "softmax", softmax(draw(60), EDGES[1], num_nodes=20)


@task("link prediction by GAE, a recurrent network on graphs, RGCN")
def models():
    model = settle(gnn.GAE(gnn.GCNConv(8, 6)))
    z = model.encode(X, EDGES)
    yield "z", z
    yield "scores", model.decode(z, EDGES)
    rgcn = settle(gnn.RGCNConv(8, 5, num_relations=3))
    yield "RGCN", rgcn(X, EDGES, choose(3, 60))
    yield "GRU", settle(gnn.GatedGraphConv(8, 2))(X, EDGES)
    yield (
        "PNA",
        settle(
            gnn.PNAConv(
                8, 5, ["mean", "max", "std"], ["identity", "amplification"], torch.arange(1, 9)
            )
        )(X, EDGES),
    )
