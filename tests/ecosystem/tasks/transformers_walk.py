"""transformers: a walk over architectures whose mechanisms differ.

Each is made small by the fields that configurations share, and gives its outputs, a loss of them
and the norms of its gradients. docs/ecosystem.md tells of the walk over all of them.
"""

import torch
from task import choose, draw, gradients, settle, task
from transformers import (
    CONFIG_MAPPING,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForCTC,
    AutoModelForImageClassification,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

WIDTHS = "hidden_size d_model n_embd embed_dim emb_dim dim embedding_size lru_width"
INNER = "intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff"
LAYERS = "num_hidden_layers n_layer n_layers encoder_layers decoder_layers num_decoder_layers"
HEADS = "num_attention_heads n_head n_heads encoder_attention_heads decoder_attention_heads"
EXPERTS = "num_experts num_local_experts n_routed_experts"
SMALL = {
    "vocab_size": 99,
    **dict.fromkeys(WIDTHS.split(), 32),
    **dict.fromkeys(INNER.split(), 48),
    "moe_intermediate_size": 48,
    "d_inner": 48,
    **dict.fromkeys(LAYERS.split(), 2),
    **dict.fromkeys(HEADS.split(), 4),
    **dict.fromkeys(EXPERTS.split(), 4),
    "num_layers": 2,
    "num_key_value_heads": 2,
    "num_experts_per_tok": 2,
    "head_dim": 8,
    "d_kv": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
    "image_size": 64,
}
"""What a configuration gets of these where it holds one number."""

IDS = {"input_ids": choose(99, 2, 9, low=3)}
BOTH_IDS = {**IDS, "decoder_input_ids": IDS["input_ids"].flip(1)}


def small(kind, **fields):
    """The configuration of a kind of models, made small. fields: what this kind needs besides."""
    usual = CONFIG_MAPPING[kind]().to_dict()
    shared = {
        name: value
        for name, value in SMALL.items()
        if isinstance(usual.get(name), int) or (name in usual and name.endswith("token_id"))
    }
    return CONFIG_MAPPING[kind](**{**shared, **fields})


def undropped(model):
    """The model in training mode, with nothing dropped: the two libraries draw otherwise."""
    for module in model.train().modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for name in ("attention_dropout", "dropout", "layerdrop"):
            if isinstance(getattr(module, name, None), float):
                setattr(module, name, 0.0)
    return model


def walked(head, inputs, **kinds):
    """What the models of some kinds give. kinds: each one's further fields."""
    for kind, fields in kinds.items():
        kind = kind.replace("__", "-")
        model = settle(head.from_config(small(kind, **fields))).eval()
        outputs = [x for x in model(**inputs).to_tuple() if isinstance(x, torch.Tensor)]
        loss = sum(x.square().mean() for x in outputs if x.requires_grad)
        loss.backward()
        yield f"{kind}: outputs", outputs[0]
        yield f"{kind}: loss", loss.item()
        yield f"{kind}: gradients", gradients(model)


@task("decoders: rotary, learned and relative places, parallel blocks, norms of all kinds")
def decoders():
    turns = {"attention_types": [[["global", "local"], 1]]}
    yield from walked(
        AutoModelForCausalLM, IDS, gpt_neox={}, gptj={"rotary_dim": 8}, opt={}, bloom={}, falcon={},
        mpt={}, codegen={"rotary_dim": 8}, phi={}, stablelm={}, olmo2={}, gemma3_text={}, cohere={},
        nemotron={"num_key_value_heads": 2}, gpt_neo=turns, xglm={}, ctrl={}, biogpt={}, glm4={},
        smollm3={}, bitnet={}, diffllama={}, xlnet={}, helium={}, apertus={},
    )  # fmt: skip


@task("decoders with experts")
def experts():
    latent = {
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "q_lora_rank": 16,
        "kv_lora_rank": 16, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4,
        "first_k_dense_replace": 1,
    }  # fmt: skip
    yield from walked(
        AutoModelForCausalLM, IDS, qwen2_moe={}, granitemoe={}, deepseek_v3=latent, gpt_oss={},
        llama4_text={}, doge={}, olmoe={}, jetmoe={},
    )  # fmt: skip


@task("decoders with states: Mamba, RWKV, recurrent Gemma, gated delta rules, hybrids")
def states():
    heads = {"mamba_n_heads": 8, "mamba_d_head": 8}
    delta = {
        "layer_types": ["linear_attention", "full_attention"], "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    }  # fmt: skip
    yield from walked(
        AutoModelForCausalLM, IDS, falcon_mamba={}, rwkv={"use_cache": False},
        mamba2={"num_heads": 8, "head_dim": 8, "n_groups": 1, "state_size": 8},
        recurrent_gemma={"num_hidden_layers": 3},
        jamba={"attn_layer_period": 2, "attn_layer_offset": 1},
        bamba={**heads, "attn_layer_indices": [1]},
        granitemoehybrid={**heads, "layer_types": ["mamba", "attention"]},
        qwen3_next=delta, minimax={}, lfm2={},
    )  # fmt: skip


@task("decoders with states: Kimi's delta rules, blocks that layers of Zamba share")
def more_states():
    latent = {
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8, "kv_lora_rank": 16,
        "num_key_value_heads": 4, "linear_head_dim": 8, "linear_num_heads": 4,
        "layer_types": ["linear_attention", "full_attention"],
        "mlp_layer_types": ["dense", "sparse"], "n_group": 1, "num_local_experts": 4,
        "num_experts_per_tok": 2,
    }  # fmt: skip
    yield from walked(
        AutoModelForCausalLM, IDS, kimi_linear=latent,
        zamba={"num_hidden_layers": 4, "layers_block_type": ["mamba", "hybrid"] * 2},
    )  # fmt: skip


@task("heads with labels: classes of texts and words, choices, answers, sounds' letters")
def heads():
    two, long = choose(2, 2), choose(2, 2, 9)
    pairs = {"input_ids": choose(99, 2, 2, 9, low=3), "labels": two}
    answers = {"start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 4])}
    still = {"mask_time_prob": 0.0, "mask_feature_prob": 0.0, "layerdrop": 0.0}
    for head, kind, inputs, fields in (
        (
            AutoModelForSequenceClassification,
            "longformer",
            {**IDS, "labels": two},
            {"attention_window": [8, 8]},
        ),
        (AutoModelForSequenceClassification, "llama", {**IDS, "labels": two}, {}),
        (AutoModelForTokenClassification, "deberta-v2", {**IDS, "labels": long}, {}),
        (AutoModelForMultipleChoice, "bert", pairs, {}),
        (AutoModelForQuestionAnswering, "bart", {**BOTH_IDS, **answers}, {}),
        (
            AutoModelForCTC,
            "wav2vec2",
            {"input_values": draw(2, 2000), "labels": choose(99, 2, 3, low=3)},
            still,
        ),
    ):
        model = undropped(settle(head.from_config(small(kind, **fields))))
        made = model(**inputs)
        made.loss.backward()
        yield f"{kind}: scores", made.start_logits if "start" in str(made.keys()) else made.logits
        yield f"{kind}: loss", made.loss.item()
        yield f"{kind}: gradients", gradients(model)


@task("encoders: disentangled, sparse, windowed, Fourier and other attention")
def encoders():
    yield from walked(
        AutoModel, IDS, distilbert={}, albert={}, electra={}, mpnet={}, convbert={}, big_bird={},
        deberta__v2={"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}, longformer={},
        nystromformer={}, fnet={}, yoso={}, mra={}, roformer={}, squeezebert={}, ibert={},
        modernbert={}, esm={"vocab_size": 99, "pad_token_id": 0}, rembert={}, canine={},
        layoutlm={}, xlm={}, tapas={},
    )  # fmt: skip


@task("encoders with decoders")
def pairs():
    yield from walked(
        AutoModel, BOTH_IDS, pegasus={}, mbart={}, m2m_100={}, umt5={}, led={}, prophetnet={},
        longt5={"encoder_attention_type": "transient-global"}, marian={}, bigbird_pegasus={},
        switch_transformers={"num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    )  # fmt: skip


@task("pictures: transformers and convolutions")
def pictures():
    two = {"embedding_size": 16, "hidden_sizes": [16, 32], "depths": [1, 1]}
    heads = {"num_attention_heads": [1, 2, 2, 4], "hidden_sizes": [8, 16, 16, 32]}
    yield from walked(
        AutoModelForImageClassification, {"pixel_values": draw(2, 3, 64, 64)}, vit={},
        swinv2={"depths": [1, 2], "num_heads": [2, 4], "window_size": 4},
        convnextv2={"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 32]}, dinov2={}, ijepa={},
        resnet=two, regnet={**two, "groups_width": 8},
        poolformer={"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]},
        focalnet={"depths": [1, 1], "focal_levels": [2, 2], "focal_windows": [3, 3]},
        segformer={**heads, "depths": [1, 1, 1, 1]}, pvt={**heads, "depths": [1, 1, 1, 1]},
    )  # fmt: skip


@task("sounds and series: attention of the caller's projections, patches of several channels")
def sounds():
    yield from walked(AutoModel, {"input_values": draw(2, 2000)}, wavlm={}, hubert={}, sew__d={})
    patches = {
        "context_length": 32, "patch_length": 4, "patch_stride": 4, "num_input_channels": 2,
    }  # fmt: skip
    yield from walked(
        AutoModel, {"past_values": draw(2, 32, 2)}, patchtst=patches, patchtsmixer=patches
    )
