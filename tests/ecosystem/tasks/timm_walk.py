"""timm: a walk over families of models whose mechanisms differ, on pictures of 32 pixels.

Each gives its classes, a loss of them and the norms of its gradients, with the statistics that
batch norms hold: a batch of two tells little of its own. docs/ecosystem.md tells of the walk over
all families.
"""

import timm
from task import draw, gradients, settle, task


def walked(names, **options):
    for name in names.split():
        model = settle(timm.create_model(name, num_classes=5, **options)).eval()
        classes = model(draw(2, 3, 32, 32))
        loss = classes.square().mean()
        loss.backward()
        yield f"{name}: classes", classes
        yield f"{name}: loss", loss.item()
        yield f"{name}: gradients", gradients(model)


@task("families of transformers")
def transformers():
    yield from walked(
        "deit_tiny_patch16_224 cait_xxs24_224 coat_tiny convit_tiny eva02_tiny_patch14_224 "
        "gcvit_xxtiny nest_tiny pit_xs_224 levit_128s xcit_nano_12_p8_224 visformer_tiny "
        "efficientformerv2_s0 hiera_tiny_224",
        img_size=32,
    )


@task("families of convolutions")
def convolutions():
    yield from walked(
        "convnext_atto cs3darknet_s cspnext_tiny dpn68 efficientvit_b0 fasternet_t0 ghostnet_050 "
        "inception_next_atto lcnetv2_small mambaout_femto repghostnet_050 rexnet_100 starnet_s050 "
        "regnety_002 resnetv2_18 hardcorenas_b skresnet18"
    )


@task("families of both")
def mixtures():
    yield from walked(
        "mobilevit_xxs edgenext_small efficientvim_m1 efficientvit_m0 lowformer_b0 pvt_v2_b0 "
        "swiftformer_xs shvit_s1 cpubone_nano poolformer_s12"
    )
