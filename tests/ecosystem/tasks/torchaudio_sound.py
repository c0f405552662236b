"""torchaudio: spectra, filters with gradients, features as Kaldi's, models of speech."""

import math

import torch
import torchaudio
from task import draw, gradients, settle, task
from torchaudio import functional as F
from torchaudio import models
from torchaudio import transforms as T
from torchaudio.compliance import kaldi

RATE = 8000


def wave(seconds=0.5, channels=2):
    """Tones that rise, and a little noise."""
    t = torch.arange(int(RATE * seconds)) / RATE
    tones = [(2 * math.pi * (220 * (k + 1) * t + 300 * t * t)).sin() for k in range(channels)]
    return 0.4 * torch.stack(tones) + draw(channels, len(t), scale=0.02)


@task("spectrograms, mel scales, MFCC, LFCC, decibels, deltas")
def spectra():
    x = wave().requires_grad_()
    yield "power", T.Spectrogram(n_fft=256, hop_length=64)(x)
    yield "complex", T.Spectrogram(n_fft=256, power=None)(x)
    mel = T.MelSpectrogram(RATE, n_fft=256, hop_length=64, n_mels=20)(x)
    yield "mel", mel
    yield "decibels", T.AmplitudeToDB("power", top_db=80)(mel)
    options = {"n_fft": 256, "hop_length": 64, "n_mels": 20}
    coefficients = T.MFCC(RATE, n_mfcc=12, melkwargs=options)(x)
    yield "mfcc", coefficients
    yield "lfcc", T.LFCC(RATE, n_lfcc=10, speckwargs={"n_fft": 256})(x)
    yield "deltas", T.ComputeDeltas()(coefficients)
    yield "normal", T.SlidingWindowCmn(cmn_window=30)(coefficients)
    coefficients.square().mean().backward()
    yield "gradient", x.grad
    yield "centroid", T.SpectralCentroid(RATE, n_fft=256)(x)


@task("waves from spectra: inverse transforms, Griffin-Lim, stretched and shifted")
def inverse():
    x = wave()
    parts = T.Spectrogram(n_fft=256, power=None)(x)
    yield "inverse", T.InverseSpectrogram(n_fft=256)(parts, x.shape[-1])
    power = parts.abs() ** 2
    yield "griffin-lim", T.GriffinLim(n_fft=256, n_iter=4, rand_init=False)(power)
    yield "stretched", T.TimeStretch(hop_length=128, n_freq=129)(parts, 1.3).abs()
    yield "shifted", F.pitch_shift(x, RATE, 4, n_fft=256)
    yield (
        "mel's inverse",
        T.InverseMelScale(129, n_mels=20, sample_rate=RATE)(
            T.MelScale(20, RATE, n_stft=129)(power)
        ).shape,
    )


@task("resampling, mu-law, fades, volume, voice activity, loudness")
def samples():
    x = wave()
    yield "16 kHz", T.Resample(RATE, 16000)(x)
    yield "11.025 kHz", F.resample(x, RATE, 11025, lowpass_filter_width=12, rolloff=0.9)
    kaiser = {"resampling_method": "sinc_interp_kaiser", "beta": 10.0}
    yield "5 kHz", F.resample(x, RATE, 5000, **kaiser)
    coded = T.MuLawEncoding()(x)
    yield "mu-law", coded
    yield "decoded", T.MuLawDecoding()(coded)
    yield "fades", T.Fade(400, 600, "logarithmic")(x)
    yield "volume", T.Vol(-6, "db")(x)
    yield "loudness", T.Loudness(RATE)(wave(1.0))
    yield "voice", T.Vad(RATE, trigger_level=1.0)(x).shape
    yield "pitch", F.detect_pitch_frequency(x, RATE)
    yield "noisy", T.AddNoise()(x, draw(2, x.shape[-1]), torch.tensor([10.0, 3.0]))
    yield "convolved", F.fftconvolve(x, draw(2, 31), mode="same")


@task("recursive filters with gradients: biquads, lfilter, filter banks")
def filters():
    x = wave(0.1).requires_grad_()
    yield "low", F.lowpass_biquad(x, RATE, 800)
    yield "high", F.highpass_biquad(x, RATE, 400)
    yield "band", F.bandpass_biquad(x, RATE, 1000, Q=2.0)
    yield "notch", F.bandreject_biquad(x, RATE, 1000)
    yield "equalizer", F.equalizer_biquad(x, RATE, 1000, 6.0)
    yield "bass", F.bass_biquad(F.treble_biquad(x, RATE, 3.0), RATE, 4.0)
    yield "deemphasis", F.deemphasis(F.preemphasis(x))
    a = torch.tensor([[1.0, -0.5, 0.2], [1.0, 0.3, -0.1]], requires_grad=True)
    b = torch.tensor([[0.2, 0.3, 0.1], [0.5, -0.2, 0.1]], requires_grad=True)
    y = F.lfilter(x, a, b, clamp=False)
    yield "lfilter", y
    y.square().sum().backward()
    yield "gradients", [x.grad, a.grad, b.grad]
    yield "forth and back", F.filtfilt(x.detach(), a.detach(), b.detach())


@task("effects: overdrive, phaser, flanger, contrast, dither")
def effects():
    x = wave(0.05)
    yield "overdrive", F.overdrive(x, gain=15)
    yield "phaser", F.phaser(x, RATE)
    yield "flanger", F.flanger(x, RATE)
    yield "contrast", F.contrast(x)
    yield "gain", F.gain(x, 3.0)
    yield "dc shift", F.dcshift(x, 0.1, 0.05)


@task("features as Kaldi's: fbank, mfcc, spectrogram")
def features():
    x = wave(channels=1) * 1000
    yield "fbank", kaldi.fbank(x, sample_frequency=RATE, num_mel_bins=20, dither=0.0)
    yield "mfcc", kaldi.mfcc(x, sample_frequency=RATE, dither=0.0)
    yield "spectrogram", kaldi.spectrogram(x, sample_frequency=RATE, dither=0.0)


def trained(model, loss_of):
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    for step in range(2):
        optimizer.zero_grad()
        loss = loss_of()
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        optimizer.step()
        yield f"loss {step}", loss.item()


@task("a wav2vec 2.0 model and a Conformer learn by CTC")
def recognizers():
    encoder = models.wav2vec2_model(
        extractor_mode="group_norm", extractor_conv_layer_config=[(32, 10, 5), (32, 3, 4)],
        extractor_conv_bias=False, encoder_embed_dim=32, encoder_projection_dropout=0.0,
        encoder_pos_conv_kernel=8, encoder_pos_conv_groups=4, encoder_num_layers=2,
        encoder_num_heads=4, encoder_attention_dropout=0.0, encoder_ff_interm_features=64,
        encoder_ff_interm_dropout=0.0, encoder_dropout=0.0, encoder_layer_norm_first=False,
        encoder_layer_drop=0.0, aux_num_out=8,
    )  # fmt: skip
    settle(encoder).train()
    targets, lengths = torch.tensor([[1, 2, 3], [4, 5, 6]]), torch.tensor([3, 3])

    def ctc():
        scores, _ = encoder(wave(0.2))
        frames = torch.full((2,), scores.shape[1])
        return torch.nn.functional.ctc_loss(
            scores.log_softmax(-1).transpose(0, 1), targets, frames, lengths
        )

    for name, value in trained(encoder, ctc):
        yield f"wav2vec: {name}", value
    conformer = settle(models.Conformer(16, 4, 32, 2, 7)).train()
    spectra, frames = draw(2, 20, 16), torch.tensor([20, 14])
    for name, value in trained(conformer, lambda: conformer(spectra, frames)[0].square().mean()):
        yield f"Conformer: {name}", value


@task("Conv-TasNet, Emformer, DeepSpeech, Wav2Letter, WaveRNN")
def others():
    separator = models.ConvTasNet(
        2, 8, 16, msk_kernel_size=3, msk_num_feats=8, msk_num_hidden_feats=16, msk_num_layers=2,
        msk_num_stacks=1,
    )  # fmt: skip
    sounds = wave(0.05)[:, None]
    for name, value in trained(
        settle(separator).train(), lambda: (separator(sounds) - sounds).square().mean()
    ):
        yield f"Conv-TasNet: {name}", value
    emformer = settle(models.Emformer(16, 4, 32, 2, 4, right_context_length=1)).eval()
    yield "Emformer", emformer(draw(2, 13, 16), torch.tensor([12, 9]))[0]
    yield "DeepSpeech", settle(models.DeepSpeech(16, 24, 8, dropout=0.0)).eval()(draw(2, 1, 10, 16))
    yield "Wav2Letter", settle(models.Wav2Letter(8, "mfcc", 16)).eval()(draw(2, 16, 30))
    sampler = models.WaveRNN(
        upsample_scales=[2, 2, 3], n_classes=8, hop_length=12, n_res_block=1, n_rnn=16, n_fc=16,
        kernel_size=3, n_freq=8, n_hidden=8, n_output=8,
    )  # fmt: skip
    yield "WaveRNN", settle(sampler).eval()(draw(1, 1, 36), draw(1, 1, 8, 5))
    yield "version", torchaudio.__version__.split("+")[0]
