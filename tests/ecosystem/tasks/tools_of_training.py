"""pytorch-metric-learning, captum, torchinfo, pytorch-optimizer, e3nn, open_clip, TabNet, TRL."""

import torch
from task import choose, draw, gradients, settle, task


def network():
    return settle(
        torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    )


@task("pytorch-metric-learning: losses, miners, distances, accuracies")
def metric_learning():
    from pytorch_metric_learning import distances, losses, miners

    labels = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    found = {
        "triplet": losses.TripletMarginLoss(),
        "contrastive": losses.ContrastiveLoss(),
        "NTXent": losses.NTXentLoss(),
        "multi-similarity": losses.MultiSimilarityLoss(),
        "circle": losses.CircleLoss(),
        "ArcFace": settle(losses.ArcFaceLoss(4, 5)),
        "ProxyAnchor": settle(losses.ProxyAnchorLoss(4, 5)),
        "SupCon": losses.SupConLoss(distance=distances.LpDistance(normalize_embeddings=True)),
    }
    for name, loss in found.items():
        x = draw(8, 5).requires_grad_()
        value = loss(x, labels)
        value.backward()
        yield name, [value, x.grad]
    x = draw(8, 5)
    for miner in (miners.MultiSimilarityMiner(), miners.BatchHardMiner()):
        pairs = miner(x, labels)
        yield type(miner).__name__, list(pairs)
        yield f"{type(miner).__name__} loss", found["triplet"](x, labels, pairs)


@task("captum: integrated gradients, saliency, occlusion, GradCAM, Shapley's values")
def attributions():
    from captum import attr

    net, x = network(), draw(3, 6)
    labels = choose(4, 3)
    made, delta = attr.IntegratedGradients(net).attribute(
        x, target=labels, n_steps=16, return_convergence_delta=True
    )
    yield "integrated", [made, delta]
    for kind in (attr.Saliency, attr.InputXGradient, attr.DeepLift, attr.GuidedBackprop, attr.LRP):
        yield kind.__name__, kind(net).attribute(x.clone().requires_grad_(), target=labels)
    yield "occlusion", attr.Occlusion(net).attribute(x, (2,), target=labels)
    yield "ablation", attr.FeatureAblation(net).attribute(x, target=labels)
    yield "layer", attr.LayerConductance(net, net[0]).attribute(x, target=labels, n_steps=8)
    images = settle(
        torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 4)
        )
    )
    yield "GradCAM", attr.LayerGradCam(images, images[0]).attribute(draw(2, 3, 8, 8), target=1)


@task("torchinfo and pytorch-optimizer: a summary, fourteen optimizers")
def optimizers():
    import pytorch_optimizer
    import torchinfo

    net = network()
    shown = torchinfo.summary(net, input_size=(2, 6), verbose=0)
    yield "summary", [shown.total_params, shown.trainable_params, shown.total_mult_adds]
    yield "text", str(shown).splitlines()[:6]
    x, labels = draw(8, 6), choose(4, 8)
    for name in (
        "AdaBelief AdaBound Adan AdEMAMix Lamb Lion MADGRAD RAdam Ranger "
        "Prodigy ScheduleFreeAdamW SOAP Muon Shampoo"
    ).split():
        net = network()
        options = {"use_muon": True} if name == "Muon" else {}
        kind = getattr(pytorch_optimizer, name)
        given = [{"params": list(net.parameters()), **options}] if options else net.parameters()
        optimizer = kind(given, lr=1e-2)
        if hasattr(optimizer, "train"):
            optimizer.train()
        losses = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(net(x), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        yield name, losses


@task("e3nn: spherical harmonics, Wigner's matrices, tensor products, equivariance")
def equivariant():
    from e3nn import nn, o3

    x = draw(4, 3)
    yield "harmonics", o3.spherical_harmonics([0, 1, 2, 3], x, True)
    yield "Wigner 3j", o3.wigner_3j(1, 2, 2)
    angles = torch.tensor([0.3]), torch.tensor([0.5]), torch.tensor([-0.7])
    yield "Wigner D", o3.wigner_D(2, *angles)
    into, out = o3.Irreps("4x0e + 2x1o"), o3.Irreps("3x0e + 2x1o + 1x2e")
    product = settle(o3.FullyConnectedTensorProduct(into, "1x0e + 1x1o", out))
    a, b = into.randn(5, -1) * 0 + draw(5, into.dim), draw(5, 4, seed=1)
    made = product(a.requires_grad_(), b)
    yield "product", made
    made.square().sum().backward()
    yield "gradients", [a.grad, gradients(product)]
    turn = o3.matrix_z(torch.tensor(0.4))
    turned = product(a @ into.D_from_matrix(turn).T, b @ o3.Irreps("0e+1o").D_from_matrix(turn).T)
    yield "equivariant", bool((turned - made @ out.D_from_matrix(turn).T).abs().max() < 1e-4)
    gate = nn.Gate("3x0e", [torch.tanh], "1x0e", [torch.sigmoid], "1x1o")
    yield "gate", gate(draw(5, gate.irreps_in.dim))


@task("open_clip: a small CLIP and its loss; MS-SSIM; TabNet")
def clip():
    import pytorch_msssim
    from open_clip import CLIP, ClipLoss
    from pytorch_tabnet.tab_network import TabNet

    vision = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
    text = {"context_length": 12, "vocab_size": 60, "width": 32, "heads": 2, "layers": 2}
    model = settle(CLIP(embed_dim=16, vision_cfg=vision, text_cfg=text))
    pictures, ids, loss_of = draw(4, 3, 32, 32), choose(60, 4, 12), ClipLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of(*model(pictures, ids))
        loss.backward()
        optimizer.step()
        yield f"loss {step}", loss.item()
    yield "gradients", gradients(model)
    a, b = draw(2, 3, 176, 176).sigmoid(), draw(2, 3, 176, 176, seed=1).sigmoid()
    yield "MS-SSIM", pytorch_msssim.ms_ssim(a, b * 0.1 + a * 0.9, data_range=1.0)
    net = settle(TabNet(8, 3, n_d=4, n_a=4, n_steps=2, group_attention_matrix=torch.eye(8)))
    made, penalty = net(draw(16, 8))
    yield "TabNet", [made, penalty]


@task("datasets and TRL: supervised fine-tuning, preferences by DPO")
def alignment():
    import tempfile

    from datasets import Dataset
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
    from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

    words = ["[PAD]", "[EOS]", "[UNK]", "a", "good", "bad", "film", "book", "is", "this"]
    inner = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, pad_token="[PAD]", eos_token="[EOS]", unk_token="[UNK]"
    )

    def model():
        config = GPT2Config(
            vocab_size=len(words), n_embd=16, n_layer=1, n_head=2, n_positions=32,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        )  # fmt: skip
        made = settle(GPT2LMHeadModel(config))
        made.save_pretrained(f"{folder}/model")
        tokenizer.save_pretrained(f"{folder}/model")
        return GPT2LMHeadModel.from_pretrained(f"{folder}/model")

    options = {
        "per_device_train_batch_size": 6, "max_steps": 3, "logging_steps": 1, "report_to": [],
        "save_strategy": "no", "use_cpu": True, "learning_rate": 1e-2, "bf16": False,
        "disable_tqdm": True, "gradient_checkpointing": False, "dataloader_pin_memory": False,
    }  # fmt: skip
    texts = Dataset.from_dict({"text": ["this is a good film", "this book is bad"] * 3})
    with tempfile.TemporaryDirectory() as folder:
        made = SFTTrainer(
            model(), SFTConfig(folder, **options), train_dataset=texts, processing_class=tokenizer
        )
        made.train()
        yield "SFT", [line["loss"] for line in made.state.log_history if "loss" in line]
        pairs = Dataset.from_dict(
            {
                "prompt": ["this film"] * 4,
                "chosen": [" is good"] * 4,
                "rejected": [" is bad"] * 4,
            }
        )
        made = DPOTrainer(
            model(), args=DPOConfig(folder, **options), train_dataset=pairs,
            processing_class=tokenizer,
        )  # fmt: skip
        made.train()
        yield "DPO", [line["loss"] for line in made.state.log_history if "loss" in line]
