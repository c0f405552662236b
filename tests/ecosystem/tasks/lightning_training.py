"""Lightning: fit, validate, test, callbacks, checkpoints, early stopping, mixed precision."""

import logging
import tempfile
from pathlib import Path

import lightning as L
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from task import draw, settle, task
from torch.utils.data import DataLoader, TensorDataset

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("lightning.fabric").setLevel(logging.ERROR)


def rows(count=32, seed=0):
    x = draw(count, 8, seed=seed)
    return DataLoader(TensorDataset(x, (x[:, :3].argmax(1))), batch_size=8)


class Classifier(L.LightningModule):
    def __init__(self, width=16, rate=0.05):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, width), torch.nn.ReLU(), torch.nn.Linear(width, 3)
        )
        settle(self.net)
        self.seen = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss, on_step=True, on_epoch=True)
        self.seen.append(loss.detach())
        return loss

    def validation_step(self, batch, index):
        made = self(batch[0])
        self.log("val_loss", torch.nn.functional.cross_entropy(made, batch[1]), prog_bar=True)
        self.log("val_right", (made.argmax(1) == batch[1]).float().mean())

    def test_step(self, batch, index):
        self.log("test_loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def predict_step(self, batch, index):
        return self(batch[0]).softmax(-1)

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams.rate, momentum=0.9)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.8)]


def trainer(**options):
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return L.Trainer(accelerator="cpu", **{**quiet, "enable_checkpointing": False, **options})


@task("fit, validate, test, predict")
def loops():
    model, own = Classifier(), trainer(max_epochs=3)
    own.fit(model, rows(), rows(16, seed=1))
    yield "losses", torch.stack(model.seen)
    yield "metrics", {k: float(v) for k, v in own.callback_metrics.items()}
    yield "validated", own.validate(model, rows(16, seed=1), verbose=False)
    yield "tested", own.test(model, rows(16, seed=2), verbose=False)
    yield "predicted", torch.cat(own.predict(model, rows(16, seed=2)))


@task("checkpoints: the best is kept, loaded and resumed from")
def checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        kept = ModelCheckpoint(folder, "best-{epoch}", monitor="val_loss", save_last=True)
        own = trainer(max_epochs=2, callbacks=[kept], enable_checkpointing=True)
        own.fit(Classifier(), rows(), rows(16, seed=1))
        yield "score", float(kept.best_model_score)
        again = Classifier.load_from_checkpoint(kept.best_model_path, weights_only=False)
        yield "loaded", again(draw(4, 8))
        more = trainer(max_epochs=4)
        resumed = Classifier()
        more.fit(
            resumed, rows(), rows(16, seed=1), ckpt_path=f"{folder}/last.ckpt", weights_only=False
        )
        yield "steps", more.global_step
        yield "resumed", resumed(draw(4, 8))
        yield "files", sorted(p.name for p in Path(folder).iterdir())


@task("early stopping, rates in a CSV log, clipped and accumulated gradients")
def callbacks():
    with tempfile.TemporaryDirectory() as folder:
        stop = EarlyStopping("val_loss", patience=1, min_delta=0.2)
        own = trainer(
            max_epochs=8, callbacks=[stop, LearningRateMonitor()], logger=CSVLogger(folder),
            gradient_clip_val=0.5, accumulate_grad_batches=2, log_every_n_steps=1,
        )  # fmt: skip
        model = Classifier()
        own.fit(model, rows(), rows(16, seed=1))
        yield "stopped", stop.stopped_epoch
        yield "made", model(draw(4, 8))
        log = next(Path(folder).rglob("metrics.csv")).read_text().splitlines()
        yield "columns", sorted(log[0].split(","))


@task("mixed precision: bf16", tolerance=2e-2)
def mixed():
    model, own = Classifier(), trainer(max_epochs=2, precision="bf16-mixed")
    own.fit(model, rows(), rows(16, seed=1))
    yield "losses", torch.stack(model.seen)
    yield "dtype", str(model.net[0].weight.dtype)


@task("manual optimization of two optimizers")
def manual():
    class Pair(Classifier):
        automatic_optimization = False

        def training_step(self, batch, index):
            for optimizer in self.optimizers():
                loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
                optimizer.zero_grad()
                self.manual_backward(loss)
                optimizer.step()
            self.seen.append(loss.detach())

        def configure_optimizers(self):
            first = torch.optim.Adam(self.net[0].parameters(), 1e-2)
            return first, torch.optim.SGD(self.net[2].parameters(), 0.1)

    model = Pair()
    trainer(max_epochs=2).fit(model, rows())
    yield "losses", torch.stack(model.seen)


@task("weights averaged by SWA, profiled, seeded, summed up")
def others():
    from lightning.pytorch.callbacks import StochasticWeightAveraging
    from lightning.pytorch.utilities.model_summary import ModelSummary

    L.seed_everything(1, verbose=False)
    model = Classifier()
    own = trainer(max_epochs=4, callbacks=[StochasticWeightAveraging(0.01, swa_epoch_start=2)])
    own.fit(model, rows())
    yield "made", model(draw(4, 8))
    summary = ModelSummary(model, max_depth=-1)
    yield "parameters", summary.total_parameters
    yield "layers", summary.layer_types
    yield "batches", own.num_training_batches


@task("Fabric: a loop of one's own")
def fabric():
    own = L.Fabric(accelerator="cpu", devices=1)
    own.launch()
    net = settle(torch.nn.Linear(8, 3))
    net, optimizer = own.setup(net, torch.optim.SGD(net.parameters(), 0.1))
    loader = own.setup_dataloaders(rows())
    for x, y in loader:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(x), y)
        own.backward(loss)
        own.clip_gradients(net, optimizer, max_norm=1.0)
        optimizer.step()
    yield "loss", loss.item()
    with tempfile.TemporaryDirectory() as folder:
        own.save(f"{folder}/a.ckpt", {"net": net, "step": 3})
        yield "step", own.load(f"{folder}/a.ckpt", {"net": net})["step"]
