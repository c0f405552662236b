"""diffusers: UNets, VAE, transformers, schedulers, a pipeline."""

import tempfile

import diffusers
import torch
from diffusers import AutoencoderKL, DDPMPipeline, UNet2DConditionModel, UNet2DModel
from task import draw, gradients, settle, task


def unet():
    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4,
    )  # fmt: skip
    return settle(model)


@task("UNet2D: training steps of a diffusion model")
def training():
    model, noise = unet(), draw(2, 3, 16, 16, seed=1)
    scheduler = diffusers.DDPMScheduler(num_train_timesteps=100)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    when = torch.tensor([3, 60])
    for step in range(2):
        noisy = scheduler.add_noise(draw(2, 3, 16, 16), noise, when)
        loss = torch.nn.functional.mse_loss(model(noisy, when).sample, noise)
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        optimizer.step()
        yield f"loss {step}", loss.item()


@task("UNet2DConditionModel: cross attention on a text's states")
def conditional():
    model = UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, norm_num_groups=4,
        block_out_channels=(8, 16), cross_attention_dim=12, attention_head_dim=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    )  # fmt: skip
    settle(model)
    made = model(
        draw(2, 4, 8, 8), torch.tensor([5, 9]), encoder_hidden_states=draw(2, 6, 12)
    ).sample
    made.square().mean().backward()
    yield "made", made
    yield "gradients", gradients(model)


@task("AutoencoderKL: latents, reconstruction, tiled decoding")
def autoencoder():
    model = AutoencoderKL(
        block_out_channels=(8, 16), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, sample_size=32,
    )  # fmt: skip
    settle(model).eval()
    latents = model.encode(draw(1, 3, 32, 32)).latent_dist
    yield "mode", latents.mode()
    yield "kl", latents.kl()
    yield "decoded", model.decode(latents.mode()).sample


@task("schedulers: DDIM, Euler, DPM-Solver, UniPC, LMS, PNDM, flow matching")
def schedulers():
    names = (
        "DDIMScheduler EulerDiscreteScheduler DPMSolverMultistepScheduler UniPCMultistepScheduler "
        "LMSDiscreteScheduler PNDMScheduler FlowMatchEulerDiscreteScheduler HeunDiscreteScheduler "
        "KDPM2DiscreteScheduler DEISMultistepScheduler IPNDMScheduler EDMEulerScheduler"
    )
    for name in names.split():
        scheduler = getattr(diffusers, name)()
        scheduler.set_timesteps(6)
        sample = draw(1, 3, 8, 8)
        for t in scheduler.timesteps:
            model_input = sample
            if hasattr(scheduler, "scale_model_input"):
                model_input = scheduler.scale_model_input(sample, t)
            sample = scheduler.step((model_input * 0.9).sin(), t, sample).prev_sample
        yield name, sample


@task("DDPMPipeline: pictures, saved and loaded")
def pipeline():
    made = DDPMPipeline(unet().eval(), diffusers.DDPMScheduler(num_train_timesteps=100))
    made.set_progress_bar_config(disable=True)
    torch.manual_seed(0)
    images = made(batch_size=1, num_inference_steps=2, output_type="np").images
    yield "shape", list(images.shape)
    yield "range", bool(images.min() >= 0 and images.max() <= 1)
    with tempfile.TemporaryDirectory() as folder:
        made.save_pretrained(folder)
        again = DDPMPipeline.from_pretrained(folder)
        yield (
            "same",
            all(
                bool((a == b).all())
                for a, b in zip(made.unet.parameters(), again.unet.parameters())
            ),
        )


@task("transformers of pictures: DiT and SD3's")
def transformers():
    model = diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8,
        patch_size=2, num_embeds_ada_norm=100, norm_num_groups=4,
    )  # fmt: skip
    settle(model).eval()
    yield (
        "DiT",
        model(draw(2, 4, 8, 8), torch.tensor([3, 9]), class_labels=torch.tensor([1, 2])).sample,
    )
    model = diffusers.SD3Transformer2DModel(
        sample_size=8, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=8,
        num_attention_heads=2, joint_attention_dim=12, caption_projection_dim=16,
        pooled_projection_dim=10, out_channels=4, pos_embed_max_size=8,
    )  # fmt: skip
    settle(model).eval()
    made = model(draw(2, 4, 8, 8), draw(2, 6, 12), draw(2, 10), torch.tensor([3.0, 9.0])).sample
    yield "SD3", made


@task("EMA of weights and evaluation")
def others():
    from diffusers.training_utils import EMAModel

    model = unet()
    average = EMAModel(model.parameters(), decay=0.5)
    settle(model, seed=1)
    average.step(model.parameters())
    average.copy_to(model.parameters())
    model.eval()
    yield "averaged", model.conv_in.weight
    yield "made", model(draw(1, 3, 16, 16), 3).sample
