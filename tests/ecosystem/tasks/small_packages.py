"""einops, safetensors, torchmetrics, skorch, ignite, TensorBoard, sentence-transformers."""

import tempfile
from pathlib import Path

import numpy as np
import torch
from task import choose, draw, settle, task


@task("einops: rearrange, reduce, repeat, einsum, pack, layers")
def einops_functions():
    import einops
    from einops.layers.torch import EinMix, Rearrange, Reduce

    x = draw(2, 3, 4, 6)
    yield "rearrange", einops.rearrange(x, "b c (h p) w -> b (c p) h w", p=2)
    yield "reduce", einops.reduce(x, "b c (h 2) (w 2) -> b c h w", "max")
    yield "repeat", einops.repeat(x[0, 0], "h w -> h w k", k=2)
    yield "einsum", einops.einsum(x, draw(6, 5), "b c h w, w o -> b o h")
    packed, shapes = einops.pack([x, x[:, :, 0]], "b c *")
    yield "packed", packed
    yield "unpacked", einops.unpack(packed, shapes, "b c *")[1]
    net = torch.nn.Sequential(
        Rearrange("b c h w -> b (h w) c"),
        EinMix("b t c -> b t d", "c d", c=3, d=5, bias_shape="d"),
        Reduce("b t d -> b d", "mean"),
    )  # fmt: skip
    yield "layers", settle(net)(x)


@task("safetensors: saved models, slices, half types")
def safetensors_files():
    from safetensors import safe_open
    from safetensors.torch import load, load_model, save, save_file, save_model

    model = settle(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 3)))
    model.add_module("tied", model[0])
    with tempfile.TemporaryDirectory() as folder:
        save_model(model, f"{folder}/model.safetensors")
        before = model[0].weight.detach().clone()
        torch.nn.init.zeros_(model[0].weight)
        load_model(model, f"{folder}/model.safetensors")
        yield "tied", bool((model.tied.weight == before).all())
        save_file({"a": draw(6, 5), "b": torch.arange(4)}, f"{folder}/x", {"made": "here"})
        with safe_open(f"{folder}/x", framework="pt") as file:
            yield "names", sorted(file.keys())
            yield "part", file.get_slice("a")[1:3, 2:]
            yield "said", file.metadata()
    half = load(save({"half": torch.tensor([1.5, -2.0], dtype=torch.bfloat16)}))["half"]
    yield "half", [str(half.dtype), half.tolist()]


@task("torchmetrics: classification, regression, images, texts")
def metrics():
    import torchmetrics as tm

    scores, labels = draw(30, 4).softmax(1), choose(4, 30)
    multi = {"task": "multiclass", "num_classes": 4}
    for name in ("Accuracy", "F1Score", "AUROC", "ConfusionMatrix", "Precision", "CohenKappa"):
        metric = getattr(tm, name)(**multi)
        metric(scores[:10], labels[:10]), metric.update(scores[10:], labels[10:])
        yield name, metric.compute()
    curve = tm.ROC(task="binary")(draw(20).sigmoid(), choose(2, 20))
    yield "ROC", list(curve)
    for name in ("MeanSquaredError", "R2Score", "PearsonCorrCoef", "SpearmanCorrCoef"):
        yield name, getattr(tm, name)()(draw(20), draw(20) + draw(20, seed=1))
    images = draw(2, 3, 24, 24).sigmoid(), draw(2, 3, 24, 24, seed=1).sigmoid()
    yield "SSIM", tm.image.StructuralSimilarityIndexMeasure(data_range=1.0)(*images)
    yield "PSNR", tm.image.PeakSignalNoiseRatio(data_range=1.0)(*images)
    yield "WER", tm.text.WordErrorRate()(["a good film"], ["a bad film"])
    many = tm.MetricCollection([tm.MeanSquaredError(), tm.MeanAbsoluteError()])
    yield "many", {k: float(v) for k, v in many(draw(5), draw(5, seed=2)).items()}
    yield (
        "retrieval",
        tm.retrieval.RetrievalMAP()(draw(8), choose(2, 8), indexes=choose(2, 8, seed=1)),
    )


@task("skorch: a network as a classifier of scikit-learn, in a pipeline and a search")
def skorch_networks():
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler
    from skorch import NeuralNetClassifier, NeuralNetRegressor
    from skorch.callbacks import EarlyStopping

    x = draw(40, 6).numpy()
    y = x[:, :3].argmax(1).astype(np.int64)

    class Net(torch.nn.Module):
        def __init__(self, width=12, out=3):
            super().__init__()
            self.layers = settle(
                torch.nn.Sequential(
                    torch.nn.Linear(6, width), torch.nn.ReLU(), torch.nn.Linear(width, out)
                )
            )

        def forward(self, x):
            return self.layers(x)

    options = {"max_epochs": 4, "lr": 0.1, "verbose": 0, "train_split": None}
    net = NeuralNetClassifier(Net, criterion=torch.nn.CrossEntropyLoss, **options)
    whole = Pipeline([("scale", StandardScaler()), ("net", net)]).fit(x, y)
    yield "losses", [row["train_loss"] for row in whole["net"].history]
    yield "probabilities", whole.predict_proba(x[:5])
    yield "score", whole.score(x, y)
    search = GridSearchCV(net, {"module__width": [4, 8]}, cv=2, scoring="accuracy", refit=False)
    yield "search", list(search.fit(x, y).cv_results_["mean_test_score"])
    regressor = NeuralNetRegressor(
        Net, module__out=1, callbacks=[EarlyStopping("train_loss")], **options
    )
    yield "regression", regressor.fit(x, x[:, :1]).predict(x[:4])
    with tempfile.TemporaryDirectory() as folder:
        net.set_params(module__width=12)
        net.fit(x, y).save_params(f_params=f"{folder}/p.pt")
        again = NeuralNetClassifier(
            Net, criterion=torch.nn.CrossEntropyLoss, **options
        ).initialize()
        again.load_params(f_params=f"{folder}/p.pt")
        yield "loaded", again.predict_proba(x[:3])


@task("ignite: an engine with metrics, handlers and checkpoints")
def ignite_engines():
    from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
    from ignite.handlers import Checkpoint, DiskSaver, EarlyStopping, PiecewiseLinear
    from ignite.metrics import Accuracy, ConfusionMatrix, Loss

    model = settle(
        torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3))
    )
    x = draw(40, 6)
    data = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, x[:, :3].argmax(1)), batch_size=8
    )
    optimizer, loss = torch.optim.SGD(model.parameters(), 0.1), torch.nn.CrossEntropyLoss()
    trainer = create_supervised_trainer(model, optimizer, loss)
    metrics = {"right": Accuracy(), "loss": Loss(loss), "table": ConfusionMatrix(3)}
    evaluator = create_supervised_evaluator(model, metrics)
    losses = []
    trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda e: losses.append(e.state.output))
    schedule = PiecewiseLinear(optimizer, "lr", [(0, 0.1), (10, 0.01)])
    trainer.add_event_handler(Events.ITERATION_STARTED, schedule)
    stop = EarlyStopping(1, lambda e: -e.state.metrics["loss"], trainer)
    evaluator.add_event_handler(Events.COMPLETED, stop)
    with tempfile.TemporaryDirectory() as folder:
        saver = Checkpoint({"model": model}, DiskSaver(folder), n_saved=1)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, saver)
        trainer.add_event_handler(Events.EPOCH_COMPLETED, lambda e: evaluator.run(data))
        trainer.run(data, max_epochs=3)
        yield "files", sorted(p.name for p in Path(folder).iterdir())
    yield "losses", losses
    yield "metrics", {k: evaluator.state.metrics[k] for k in ("right", "loss")}
    yield "table", evaluator.state.metrics["table"]


@task("TensorBoard: scalars, histograms, images, texts and a hyperparameter table are read back")
def tensorboard_logs():
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            for step in range(3):
                writer.add_scalar("loss", 1.0 / (step + 1), step)
            writer.add_histogram("weights", draw(100), 0)
            writer.add_image("image", draw(3, 8, 8).sigmoid(), 0)
            writer.add_text("note", "hello")
        read = EventAccumulator(folder).Reload()
        yield "scalars", [[e.step, e.value] for e in read.Scalars("loss")]
        tags = read.Tags()
        yield "tags", [tags["scalars"], tags["histograms"], tags["images"]]
        histogram = read.Histograms("weights")[0].histogram_value
        yield "histogram", [histogram.min, histogram.max, histogram.num]


@task("sentence-transformers: embeddings, similarity, training, a saved model")
def sentences():
    from sentence_transformers import SentenceTransformer, losses, util
    from sentence_transformers.models import Normalize, Pooling, Transformer
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    words = ["[PAD]", "[UNK]", "a", "good", "bad", "film", "book"]
    own = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    own.pre_tokenizer = Whitespace()
    tokens = PreTrainedTokenizerFast(tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]")
    config = BertConfig(
        vocab_size=7, hidden_size=16, intermediate_size=24, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        settle(BertModel(config)).save_pretrained(folder)
        tokens.save_pretrained(folder)
        bert = Transformer(folder, max_seq_length=16)
        model = SentenceTransformer(
            modules=[bert, Pooling(bert.get_embedding_dimension()), Normalize()], device="cpu"
        )
        texts = ["a good film", "a bad book", "good good"]
        made = model.encode(texts, convert_to_tensor=True)
        yield "made", made
        yield "similar", util.cos_sim(made, made)
        yield "found", util.semantic_search(made[:1], made, top_k=2)[0][0]["corpus_id"]
        loss = losses.CosineSimilarityLoss(model)
        rows = [model.tokenize(texts[:2]), model.tokenize(texts[1:])]
        value = loss(rows, torch.tensor([0.9, 0.1]))
        value.backward()
        yield "loss", value.item()
        model.save(f"{folder}/saved")
        again = SentenceTransformer(f"{folder}/saved", device="cpu")
        yield "same", bool(np.abs(again.encode(texts) - made.cpu().numpy()).max() < 1e-6)


@task("TensorBoard: a table of hyperparameters, curves, sounds, images in a grid; SB3's logger")
def tensorboard_tables():
    from stable_baselines3.common.logger import HParam, TensorBoardOutputFormat
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with tempfile.TemporaryDirectory() as folder:
        with SummaryWriter(folder) as writer:
            writer.add_hparams({"lr": 0.1, "name": "a", "deep": True}, {"score": 0.5}, run_name="r")
            writer.add_pr_curve("curve", choose(2, 50), draw(50).sigmoid(), num_thresholds=11)
            writer.add_audio("sound", draw(1, 300).tanh(), sample_rate=8000)
            writer.add_images("images", draw(10, 1, 4, 4).sigmoid())
            writer.add_histogram("joined", draw(200), max_bins=20)
            writer.add_scalar("new", 2.5, 3, new_style=True)
        read = EventAccumulator(folder, {"tensors": 0, "images": 0, "audio": 0}).Reload()
        curve = read.Tensors("curve")[0].tensor_proto.float_val
        yield "curve", np.asarray(curve, np.float32)
        sound = read.Audio("sound")[0]
        yield "sound", [sound.sample_rate, len(sound.encoded_audio_string), sound.content_type]
        image = read.Images("images")[0]
        yield "images", [image.width, image.height]
        joined = read.Histograms("joined")[0].histogram_value
        yield "joined", [list(joined.bucket), np.asarray(joined.bucket_limit)]
        yield "new", read.Tensors("new")[0].tensor_proto.float_val[0]
        yield "score", EventAccumulator(f"{folder}/r").Reload().Scalars("score")[0].value
    with tempfile.TemporaryDirectory() as folder:
        logger = TensorBoardOutputFormat(folder)
        logger.write(
            {"a": 1.5, "table": HParam({"lr": 0.1}, {"a": 0.0})}, {"a": (), "table": ()}, 7
        )
        logger.close()
        scalar = EventAccumulator(folder).Reload().Scalars("a")[0]
        yield "logger", [scalar.step, scalar.value]
