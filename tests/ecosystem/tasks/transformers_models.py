"""transformers: model families, generation, Trainer, saved models."""

import tempfile

import torch
import transformers as hf
from task import choose, draw, gradients, settle, task

TEXT = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
DECODER = {**TEXT, "intermediate_size": 48, "num_key_value_heads": 2, "max_position_embeddings": 64}
ENCODER = {**TEXT, "intermediate_size": 48, "max_position_embeddings": 64}
QUIET = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
IDS = choose(99, 2, 9, low=3)
MASK = torch.ones_like(IDS)
MASK[1, 6:] = 0


def trained(model, inputs, steps=2):
    """Losses of some steps, the gradients of the first one."""
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(**inputs).loss
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield f"loss {step}", loss.item()


def language_model(model):
    settle(model)
    yield from trained(model, {"input_ids": IDS, "attention_mask": MASK, "labels": IDS})
    model.eval()
    yield "logits", model(input_ids=IDS, attention_mask=MASK).logits


def tiny_llama():
    return settle(hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER))).eval()


@task("GPT-2: training steps")
def gpt2():
    config = hf.GPT2Config(
        vocab_size=99, n_positions=64, n_embd=32, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip
    yield from language_model(hf.GPT2LMHeadModel(config))


@task("Llama: training steps")
def llama():
    yield from language_model(hf.LlamaForCausalLM(hf.LlamaConfig(**DECODER)))


@task("Qwen3: training steps")
def qwen3():
    yield from language_model(hf.Qwen3ForCausalLM(hf.Qwen3Config(**DECODER, head_dim=8)))


@task("Gemma 2: training steps")
def gemma2():
    yield from language_model(hf.Gemma2ForCausalLM(hf.Gemma2Config(**DECODER, head_dim=8)))


@task("Mixtral: training steps")
def mixtral():
    config = hf.MixtralConfig(**DECODER, num_local_experts=4, num_experts_per_tok=2)
    yield from language_model(hf.MixtralForCausalLM(config))


@task("BERT: masked language model, classification")
def bert():
    config = hf.BertConfig(**ENCODER, **QUIET, num_labels=3)
    yield from language_model(hf.BertForMaskedLM(config))
    model = settle(hf.BertForSequenceClassification(config))
    inputs = {"input_ids": IDS, "attention_mask": MASK, "labels": torch.tensor([0, 2])}
    for name, value in trained(model, inputs):
        yield f"classes: {name}", value


@task("RoBERTa: token classification, question answering")
def roberta():
    config = hf.RobertaConfig(**ENCODER, **QUIET, num_labels=5)
    model = settle(hf.RobertaForTokenClassification(config))
    yield from trained(model, {"input_ids": IDS, "labels": IDS % 5})
    asked = settle(hf.RobertaForQuestionAnswering(hf.RobertaConfig(**ENCODER))).eval()
    made = asked(IDS, start_positions=IDS[:, 0] % 9, end_positions=IDS[:, 1] % 9)
    yield "start", made.start_logits
    yield "asked", made.loss.item()


@task("T5: training steps and generation")
def t5():
    config = hf.T5Config(
        vocab_size=99, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = settle(hf.T5ForConditionalGeneration(config))
    yield from trained(
        model, {"input_ids": IDS, "attention_mask": MASK, "labels": IDS[:, :5].clone()}
    )
    model.eval()
    yield "made", model.generate(IDS, attention_mask=MASK, max_new_tokens=6, do_sample=False)


@task("BART: training steps")
def bart():
    config = hf.BartConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, dropout=0.0,
        max_position_embeddings=64,
    )  # fmt: skip
    model = settle(hf.BartForConditionalGeneration(config))
    yield from trained(model, {"input_ids": IDS, "attention_mask": MASK, "labels": IDS})


@task("ViT: image classification")
def vit():
    config = hf.ViTConfig(**TEXT, intermediate_size=48, image_size=32, patch_size=8, num_labels=4)
    model = settle(hf.ViTForImageClassification(config))
    yield from trained(model, {"pixel_values": draw(2, 3, 32, 32), "labels": torch.tensor([1, 3])})


@task("Swin: image classification")
def swin():
    config = hf.SwinConfig(
        image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4,
        num_labels=4, hidden_dropout_prob=0.0, drop_path_rate=0.0,
    )  # fmt: skip
    model = settle(hf.SwinForImageClassification(config))
    yield from trained(model, {"pixel_values": draw(2, 3, 32, 32), "labels": torch.tensor([1, 3])})


@task("CLIP: contrastive loss of texts and images")
def clip():
    text = {**ENCODER, "eos_token_id": 98, "bos_token_id": 0, "pad_token_id": 1}
    vision = {**ENCODER, "image_size": 32, "patch_size": 8}
    vision.pop("vocab_size"), vision.pop("max_position_embeddings")
    config = hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=16)
    model = settle(hf.CLIPModel(config))
    inputs = {"input_ids": IDS, "attention_mask": MASK, "pixel_values": draw(2, 3, 32, 32)}
    yield from trained(model, {**inputs, "return_loss": True})
    yield "image", model.eval()(**inputs).logits_per_image


@task("Whisper: training steps and transcription")
def whisper():
    config = hf.WhisperConfig(
        vocab_size=99, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=48, decoder_ffn_dim=48, num_mel_bins=8,
        max_source_positions=20, max_target_positions=32, dropout=0.0, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1, suppress_tokens=None,
        begin_suppress_tokens=None,
    )  # fmt: skip
    model = settle(hf.WhisperForConditionalGeneration(config))
    sound = draw(2, 8, 40)
    yield from trained(model, {"input_features": sound, "labels": IDS})
    model.eval()
    yield "made", model.generate(sound, max_new_tokens=5, do_sample=False)


@task("Wav2Vec2: CTC loss")
def wav2vec2():
    config = hf.Wav2Vec2Config(
        **ENCODER, conv_dim=(16, 16), conv_kernel=(5, 3), conv_stride=(4, 2), feat_proj_dropout=0.0,
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=2, hidden_dropout=0.0,
        attention_dropout=0.0, activation_dropout=0.0, layerdrop=0.0, final_dropout=0.0,
        mask_time_prob=0.0, ctc_loss_reduction="mean",
    )  # fmt: skip
    model = settle(hf.Wav2Vec2ForCTC(config))
    yield from trained(model, {"input_values": draw(2, 400), "labels": IDS[:, :5].clone()})


@task("Mamba: training steps")
def mamba():
    config = hf.MambaConfig(vocab_size=99, hidden_size=32, state_size=4, num_hidden_layers=2)
    model = settle(hf.MambaForCausalLM(config))
    yield from trained(model, {"input_ids": IDS, "labels": IDS})


@task("SegFormer: semantic segmentation")
def segformer():
    config = hf.SegformerConfig(
        num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16],
        patch_sizes=[7, 3], strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2],
        decoder_hidden_size=16, num_labels=4, hidden_dropout_prob=0.0, drop_path_rate=0.0,
        classifier_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = settle(hf.SegformerForSemanticSegmentation(config))
    inputs = {"pixel_values": draw(2, 3, 32, 32), "labels": choose(4, 2, 32, 32)}
    yield from trained(model, inputs)


@task("generate: greedy, with and without a cache")
def greedy():
    model = tiny_llama()
    ours = {"attention_mask": MASK.flip(1), "max_new_tokens": 8, "do_sample": False}
    yield "cached", model.generate(IDS, pad_token_id=0, **ours)
    yield "plain", model.generate(IDS, pad_token_id=0, use_cache=False, **ours)


@task("generate: beams")
def beams():
    model = tiny_llama()
    made = model.generate(
        IDS, attention_mask=torch.ones_like(IDS), pad_token_id=0, max_new_tokens=8, num_beams=4,
        do_sample=False, num_return_sequences=2, return_dict_in_generate=True, output_scores=True,
    )  # fmt: skip
    yield "made", made.sequences
    yield "scores", made.sequences_scores


@task("generate: sampled, with top-k, top-p and a repetition penalty")
def sampled():
    model = tiny_llama()
    options = {"attention_mask": torch.ones_like(IDS), "pad_token_id": 0, "do_sample": True}
    one = model.generate(IDS, top_k=1, max_new_tokens=6, **options)
    yield "the best alone", one
    torch.manual_seed(0)
    made = [
        model.generate(
            IDS, max_new_tokens=6, min_new_tokens=6, top_k=20, top_p=0.9, temperature=0.8,
            repetition_penalty=1.2, **options,
        )
        for _ in range(2)
    ]  # fmt: skip
    yield "shape", list(made[0].shape)
    yield "two draws differ", bool((made[0] != made[1]).any())
    with torch.no_grad():
        first = model(IDS).logits[:, -1]
    kept = first.topk(40).indices
    yield "likely", [int(m[IDS.shape[1]]) in k.tolist() for m, k in zip(made[0], kept)]


@task("generate: static cache")
def static_cache():
    model = tiny_llama()
    yield "made", model.generate(
        IDS, attention_mask=torch.ones_like(IDS), pad_token_id=0, max_new_tokens=8, do_sample=False,
        cache_implementation="static",
    )  # fmt: skip


@task("Trainer: two epochs, evaluation, a checkpoint that is resumed")
def trainer():
    from torch.utils.data import Dataset

    class Rows(Dataset):
        def __len__(self):
            return 12

        def __getitem__(self, i):
            return {"input_ids": choose(99, 9, seed=i), "labels": i % 3}

    config = hf.BertConfig(**ENCODER, **QUIET, num_labels=3)
    with tempfile.TemporaryDirectory() as folder:
        options = hf.TrainingArguments(
            output_dir=folder, num_train_epochs=2, per_device_train_batch_size=4, report_to=[],
            save_strategy="epoch", logging_steps=1, learning_rate=1e-3, use_cpu=True, seed=3,
            disable_tqdm=True, eval_strategy="epoch", train_sampling_strategy="sequential",
        )  # fmt: skip
        model = settle(hf.BertForSequenceClassification(config))
        own = hf.Trainer(
            model, options, train_dataset=Rows(), eval_dataset=Rows(),
            compute_metrics=lambda p: {"right": float((p[0].argmax(1) == p[1]).mean())},
        )  # fmt: skip
        own.remove_callback(hf.PrinterCallback)
        yield "loss", own.train().training_loss
        yield "losses", [x["loss"] for x in own.state.log_history if "loss" in x]
        yield "evaluated", own.evaluate()["eval_loss"]
        again = hf.Trainer(model, options, train_dataset=Rows(), eval_dataset=Rows())
        again.remove_callback(hf.PrinterCallback)
        again.train(resume_from_checkpoint=f"{folder}/checkpoint-3")
        yield "resumed", again.evaluate()["eval_loss"]


@task("save_pretrained and from_pretrained: safetensors, shards, half precision")
def saved():
    model = tiny_llama()
    before = model(IDS).logits
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, max_shard_size="20KB")
        again = hf.AutoModelForCausalLM.from_pretrained(folder).eval()
        yield "same", bool((again(IDS).logits == before).all())
        half = hf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
        yield "dtype", str(half.dtype)
        yield "half", half.lm_head.weight
    yield "logits", before


@task("gradient checkpointing")
def checkpointing():
    model = tiny_llama()
    model.config.use_cache = False
    yield from trained(model, {"input_ids": IDS, "labels": IDS}, steps=1)
    model.gradient_checkpointing_enable({"use_reentrant": False})
    for name, value in trained(model, {"input_ids": IDS, "labels": IDS}, steps=2):
        yield f"checkpointed {name}", value


@task("pipelines and tokenizers: texts to classes")
def pipelines():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    words = ["[PAD]", "[UNK]", "a", "good", "bad", "film"]
    own = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    own.pre_tokenizer = Whitespace()
    tokens = hf.PreTrainedTokenizerFast(tokenizer_object=own, pad_token="[PAD]", unk_token="[UNK]")
    model = settle(hf.BertForSequenceClassification(hf.BertConfig(**ENCODER, num_labels=2))).eval()
    classify = hf.pipeline("text-classification", model=model, tokenizer=tokens, device="cpu")
    made = classify(["a good film", "a bad film", "good"], batch_size=2)
    yield "labels", [each["label"] for each in made]
    yield "scores", [each["score"] for each in made]
