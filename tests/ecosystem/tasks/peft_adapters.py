"""peft: LoRA, DoRA, IA3, prompts, merged and saved adapters."""

import tempfile

import torch
from peft import (
    IA3Config,
    LoHaConfig,
    LoraConfig,
    OFTConfig,
    PeftModel,
    PrefixTuningConfig,
    PromptTuningConfig,
    VeraConfig,
    get_peft_model,
)
from task import choose, settle, task
from transformers import LlamaConfig, LlamaForCausalLM

IDS = choose(99, 2, 9, low=3)


def llama():
    config = LlamaConfig(
        vocab_size=99, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
    )  # fmt: skip
    return settle(LlamaForCausalLM(config))


def adapted(config, steps=3):
    model = settle(get_peft_model(llama(), config))
    yield "trainable", list(model.get_nb_trainable_parameters())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(steps):
        loss = model(input_ids=IDS, labels=IDS).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield f"loss {step}", loss.item()
    model.eval()
    yield "logits", model(input_ids=IDS).logits


@task("LoRA: training, merged weights, a saved adapter")
def lora():
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"
    )
    yield from adapted(config)
    model = settle(get_peft_model(llama(), config)).eval()
    before = model(input_ids=IDS).logits
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        again = PeftModel.from_pretrained(llama(), folder).eval()
        yield "keys", sorted(k.split(".")[-2] for k in again.state_dict() if "lora" in k)
    with model.disable_adapter():
        yield "without", model(input_ids=IDS).logits
    merged = model.merge_and_unload()
    yield "merged", bool((merged(input_ids=IDS).logits - before).abs().max() < 1e-4)
    yield "made", before


@task("DoRA and rank-stabilized LoRA")
def dora():
    config = LoraConfig(
        r=4, lora_alpha=8, target_modules="all-linear", use_dora=True, use_rslora=True,
        task_type="CAUSAL_LM",
    )  # fmt: skip
    yield from adapted(config)


@task("IA3")
def ia3():
    config = IA3Config(
        target_modules=["k_proj", "v_proj", "down_proj"], feedforward_modules=["down_proj"],
        task_type="CAUSAL_LM",
    )  # fmt: skip
    yield from adapted(config)


@task("LoHa, VeRA and OFT")
def others():
    modules = {"target_modules": ["q_proj"], "task_type": "CAUSAL_LM"}
    for config in (LoHaConfig(r=4, **modules), OFTConfig(oft_block_size=8, **modules)):
        for name, value in adapted(config):
            yield f"{type(config).__name__} {name}", value
    torch.manual_seed(0)
    vera = get_peft_model(llama(), VeraConfig(r=4, **modules))
    yield "vera", list(vera.get_nb_trainable_parameters())


@task("prompt and prefix tuning")
def prompts():
    for config in (
        PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
        PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=4),
    ):
        for name, value in adapted(config):
            yield f"{type(config).__name__} {name}", value


@task("two adapters of one model, added and switched")
def several():
    config = LoraConfig(r=2, target_modules=["q_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(llama(), config)
    model.add_adapter("other", config)
    settle(model).eval()
    yield "first", model(input_ids=IDS).logits
    model.set_adapter("other")
    yield "second", model(input_ids=IDS).logits
    model.add_weighted_adapter(["default", "other"], [0.5, 0.5], "both", combination_type="linear")
    model.set_adapter("both")
    yield "both", model(input_ids=IDS).logits
