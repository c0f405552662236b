"""x-transformers, vit-pytorch and other models of its authors, segment-anything, nnAudio."""

import torch
from task import choose, draw, settle, task
from training import steps


def trained(model, loss_of, count=2):
    return steps(model, loss_of, torch.optim.AdamW(model.parameters(), lr=1e-3), count)


@task("x-transformers: a decoder with rotary places, one with ALiBi, an encoder and decoder")
def transformers_of_all_kinds():
    from x_transformers import AutoregressiveWrapper, Decoder, Encoder, TransformerWrapper

    ids = choose(50, 2, 17)
    for options in (
        {"rotary_pos_emb": True, "ff_glu": True, "use_rmsnorm": True},
        {"alibi_pos_bias": True, "attn_qk_norm": True},
        {"rel_pos_bias": True, "attn_one_kv_head": True},
    ):
        layers = Decoder(dim=32, depth=2, heads=4, attn_dim_head=8, **options)
        net = settle(TransformerWrapper(num_tokens=50, max_seq_len=32, attn_layers=layers))
        wrapped = AutoregressiveWrapper(net)
        for name, value in trained(net, lambda w=wrapped: w(ids)):
            yield f"{min(options)} {name}", value
        net.eval()
        made = wrapped.generate(ids[:, :4], 6, temperature=0.0)
        yield f"{min(options)} written", made
    layers = Encoder(dim=32, depth=1, heads=4, attn_dim_head=8)
    yield "encoder", settle(layers)(draw(2, 9, 32), mask=torch.ones(2, 9).bool())


@task("vit-pytorch: ViT, SimpleViT, CaiT, register tokens, CCT")
def pictures():
    from vit_pytorch import SimpleViT, ViT
    from vit_pytorch.cait import CaiT
    from vit_pytorch.cct import CCT
    from vit_pytorch.simple_vit_with_register_tokens import SimpleViT as Registers

    x, labels = draw(2, 3, 32, 32), choose(5, 2)
    sizes = {"image_size": 32, "patch_size": 8, "num_classes": 5, "dim": 32, "heads": 4}
    models = (
        ViT(**sizes, depth=2, mlp_dim=48),
        SimpleViT(**sizes, depth=2, mlp_dim=48),
        CaiT(**sizes, depth=1, cls_depth=1, mlp_dim=48),
        Registers(**sizes, depth=1, mlp_dim=48),
        CCT(img_size=32, embedding_dim=32, n_conv_layers=1, num_layers=1, num_heads=4,
            mlp_ratio=2.0, num_classes=5, stochastic_depth=0.0, dropout=0.0, attention_dropout=0.0),
    )  # fmt: skip
    for model in models:
        settle(model)
        loss_of = lambda m=model: torch.nn.functional.cross_entropy(m(x), labels)  # noqa: E731
        for name, value in trained(model, loss_of):
            yield f"{type(model).__name__} {name}", value


@task("vector-quantize-pytorch: codebooks by averages, residual, finite scalar, lookup-free")
def codebooks():
    from vector_quantize_pytorch import FSQ, LFQ, ResidualVQ, VectorQuantize

    x = draw(2, 10, 8)

    def drawn(module):
        with torch.no_grad():
            for seed, (name, buffer) in enumerate(module.named_buffers()):
                if name.endswith(("embed", "embed_avg")):
                    buffer.copy_(draw(*buffer.shape, seed=seed))
        return settle(module)

    for module in (
        VectorQuantize(dim=8, codebook_size=16, decay=0.8, threshold_ema_dead_code=0),
        VectorQuantize(dim=8, codebook_size=16, use_cosine_sim=True, threshold_ema_dead_code=0),
        ResidualVQ(dim=8, num_quantizers=2, codebook_size=16, threshold_ema_dead_code=0),
    ):
        made, indices, loss = drawn(module)(x)
        yield type(module).__name__, [made, indices, loss]
        yield f"{type(module).__name__} in evaluation", module.eval()(x)[0]
    yield "FSQ", list(FSQ(levels=[8, 5, 5])(draw(2, 10, 3)))
    made, indices, loss = LFQ(codebook_size=16, dim=4)(draw(2, 10, 4))
    yield "LFQ", [made, indices, loss]


@task("rotary embeddings, local attention, Lion, EMA, a diffusion model's UNet and loss")
def parts():
    from denoising_diffusion_pytorch import GaussianDiffusion, Unet
    from ema_pytorch import EMA
    from lion_pytorch import Lion
    from local_attention import LocalAttention
    from rotary_embedding_torch import RotaryEmbedding

    rotary = RotaryEmbedding(dim=8)
    q = draw(1, 2, 16, 16).requires_grad_()
    turned = rotary.rotate_queries_or_keys(q)
    yield "turned", turned
    turned.square().sum().backward()
    yield "gradient", q.grad
    local = LocalAttention(
        dim=16, window_size=4, causal=True, look_backward=1, use_rotary_pos_emb=True
    )
    yield "local", local(draw(1, 2, 16, 16), draw(1, 2, 16, 16, seed=1), draw(1, 2, 16, 16, seed=2))
    net = settle(Unet(dim=8, dim_mults=(1, 2), flash_attn=False))
    diffusion = GaussianDiffusion(net, image_size=16, timesteps=10, auto_normalize=False)
    pictures, noise, times = draw(2, 3, 16, 16), draw(2, 3, 16, 16, seed=1), torch.tensor([2, 7])
    average = EMA(net, beta=0.9, update_every=1, update_after_step=0)
    optimizer = Lion(net.parameters(), lr=1e-4)
    for step in range(2):
        loss = diffusion.p_losses(pictures, times, noise=noise)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        average.update()
        yield f"loss {step}", loss.item()
    yield "average", average.ema_model(pictures, times)


@task("segment-anything's parts, EfficientNet, nnAudio's transforms")
def seen_and_heard():
    from efficientnet_pytorch import EfficientNet
    from nnAudio import features
    from segment_anything.modeling import (
        ImageEncoderViT,
        MaskDecoder,
        PromptEncoder,
        Sam,
        TwoWayTransformer,
    )

    size, width = 64, 16
    encoder = ImageEncoderViT(
        img_size=size, patch_size=8, embed_dim=32, depth=2, num_heads=2, out_chans=width,
        use_rel_pos=True, window_size=4, global_attn_indexes=(1,),
    )  # fmt: skip
    prompts = PromptEncoder(width, (8, 8), (size, size), mask_in_chans=4)
    decoder = MaskDecoder(
        num_multimask_outputs=3, transformer_dim=width, iou_head_depth=2, iou_head_hidden_dim=16,
        transformer=TwoWayTransformer(depth=1, embedding_dim=width, mlp_dim=32, num_heads=2),
    )  # fmt: skip
    model = settle(Sam(encoder, prompts, decoder).eval())
    place = model.prompt_encoder.pe_layer.positional_encoding_gaussian_matrix
    place.copy_(draw(*place.shape))
    points, labels = torch.tensor([[[20.0, 30.0], [40.0, 10.0]]]), torch.tensor([[1, 0]])
    batch = {
        "image": draw(3, 64, 48).sigmoid() * 255, "original_size": (90, 68),
        "point_coords": points, "point_labels": labels, "boxes": torch.tensor([[5.0, 5, 40, 50]]),
    }  # fmt: skip
    (made,) = model([batch], multimask_output=True)
    yield "quality", made["iou_predictions"]
    yield "masks", made["low_res_logits"]
    yield "shape", list(made["masks"].shape)
    net = settle(EfficientNet.from_name("efficientnet-b0", num_classes=5, image_size=64).eval())
    yield "EfficientNet", net(draw(2, 3, 64, 64))
    sound = draw(1, 2048)
    yield "STFT", features.STFT(n_fft=256, verbose=False, output_format="Magnitude")(sound)
    yield "mel", features.MelSpectrogram(sr=8000, n_fft=256, n_mels=16, verbose=False)(sound)
    yield "MFCC", features.MFCC(sr=8000, n_mfcc=8, n_fft=256, n_mels=16, verbose=False)(sound)
    made = features.CQT(sr=8000, n_bins=12, fmin=220, verbose=False)(sound)
    yield "CQT", made
