"""torchvision: models, operators with gradients, transforms, files of images."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torchvision
from PIL import Image
from task import choose, draw, gradients, settle, task
from torchvision import datasets, models, ops
from torchvision import transforms as v1
from torchvision.transforms import v2


def picture(height=40, width=56, seed=0):
    y, x = np.mgrid[:height, :width]
    waves = [np.sin(x / (5 + k) + seed) + np.cos(y / (7 - k)) for k in range(3)]
    return Image.fromarray(((np.stack(waves, -1) + 2) * 63).astype(np.uint8))


def boxes(count, size=32.0, seed=0):
    random = np.random.RandomState(seed)
    corner, extent = random.rand(count, 2) * size * 0.6, random.rand(count, 2) * size * 0.35 + 1
    return torch.from_numpy(np.concatenate([corner, corner + extent], 1).astype(np.float32))


def trained(model, size=64, steps=2, count=2, rate=1e-4):
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    for step in range(steps):
        made = model(draw(count, 3, size, size))
        made = made["out"] if isinstance(made, dict) else made
        loss = torch.nn.functional.cross_entropy(made, choose(5, count, *made.shape[2:]))
        optimizer.zero_grad()
        loss.backward()
        if step == 0:
            yield "gradients", gradients(model)
        optimizer.step()
        yield f"loss {step}", loss.item()


@task("resnet18, mobilenet_v2, densenet121, shufflenet_v2: training steps")
def convolutional():
    for name in ("resnet18", "mobilenet_v2", "densenet121", "shufflenet_v2_x0_5"):
        model = models.get_model(name, num_classes=5)
        for module in model.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 0.0
        # With fewer pictures a gradient of PyTorch changes by 1e-3 where the picture does by 1e-7,
        # and the gradients are large: a longer step would show such changes in the loss.
        for what, value in trained(settle(model).train(), count=4, rate=1e-5):
            yield f"{name}: {what}", value


@task("vit_b_16, swin_t: inference of small sizes")
def transformers():
    vit = models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=5)
    yield "vit", settle(vit).eval()(draw(2, 3, 32, 32))
    swin = models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5)
    yield "swin", settle(swin).eval()(draw(2, 3, 32, 32))


@task("deeplabv3: a training step, norms of the backbone frozen")
def segmentation():
    model = models.segmentation.deeplabv3_resnet50(weights_backbone=None, num_classes=5)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    settle(model).train().backbone.eval()
    yield from trained(model, size=49, steps=1, count=4)


@task("faster_rcnn: detections of an untrained model")
def detection():
    model = models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
        weights=None, weights_backbone=None, num_classes=4, box_score_thresh=0.0,
        box_detections_per_img=5, rpn_post_nms_top_n_test=20,
    )  # fmt: skip
    made = settle(model).eval()([draw(3, 64, 80).sigmoid()])[0]
    yield "boxes", made["boxes"]
    yield "scores", made["scores"]
    yield "labels", made["labels"]
    targets = [{"boxes": boxes(2, 60.0), "labels": torch.tensor([1, 3])}]
    model.train()
    losses = model([draw(3, 64, 80).sigmoid()], targets)
    yield "losses", sorted(losses)
    sum(losses.values()).backward()
    yield "finite", all(bool(v.isfinite()) for v in losses.values())


@task("nms, batched_nms, box_iou, giou and their kin")
def suppression():
    found, scores = boxes(40), draw(40, seed=1).sigmoid()
    yield "nms", ops.nms(found, scores, 0.3)
    yield "batched", ops.batched_nms(found, scores, choose(3, 40), 0.3)
    yield "iou", ops.box_iou(found[:5], found[5:12])
    yield "giou", ops.generalized_box_iou(found[:5], found[5:12])
    yield "converted", ops.box_convert(found, "xyxy", "cxcywh")
    for loss in (
        ops.generalized_box_iou_loss,
        ops.distance_box_iou_loss,
        ops.complete_box_iou_loss,
    ):
        leaf = found[:5].clone().requires_grad_()
        loss(leaf, found[5:10], reduction="sum").backward()
        yield loss.__name__, leaf.grad
    yield "masks", ops.masks_to_boxes(draw(2, 9, 9) > 1)


def _pooled(layer, channels, **options):
    x = draw(2, channels, 16, 18).requires_grad_()
    rois = torch.cat([torch.tensor([[0.0], [1], [0], [1]]), boxes(4)], 1)
    made = layer(x, rois, **options)
    (made * draw(*made.shape, seed=3)).sum().backward()
    yield "made", made
    yield "gradient", x.grad


@task("roi_align with gradients")
def roi_align():
    for aligned in (False, True):
        for ratio in (-1, 2):
            options = {"spatial_scale": 0.5, "sampling_ratio": ratio, "aligned": aligned}
            for name, value in _pooled(ops.roi_align, 3, output_size=(3, 4), **options):
                yield f"{aligned} {ratio} {name}", value


@task("roi_pool with gradients")
def roi_pool():
    yield from _pooled(ops.roi_pool, 3, output_size=(3, 2), spatial_scale=0.5)


@task("ps_roi_align and ps_roi_pool with gradients")
def position_sensitive():
    for name, value in _pooled(ops.ps_roi_align, 12, output_size=(3, 2), spatial_scale=0.5):
        yield f"align {name}", value
    for name, value in _pooled(ops.ps_roi_pool, 12, output_size=(3, 2), spatial_scale=0.5):
        yield f"pool {name}", value


@task("deform_conv2d with gradients")
def deformable():
    x, weight = draw(2, 4, 9, 8).requires_grad_(), draw(6, 2, 3, 3, seed=1).requires_grad_()
    offset = draw(2, 36, 5, 4, seed=2).requires_grad_()
    mask, bias = draw(2, 18, 5, 4, seed=3).sigmoid(), draw(6, seed=4).requires_grad_()
    made = ops.deform_conv2d(x, offset, weight, bias, stride=2, padding=1, mask=mask)
    (made * draw(*made.shape, seed=5)).sum().backward()
    yield "made", made
    for name, leaf in {"x": x, "weight": weight, "offset": offset, "bias": bias}.items():
        yield name, leaf.grad
    layer = settle(ops.DeformConv2d(4, 6, 3, padding=2, dilation=2))
    yield "dilated", layer(draw(1, 4, 9, 8), draw(1, 18, 9, 8, seed=7))


@task("other layers: FPN, SqueezeExcitation, StochasticDepth, focal loss")
def layers():
    pyramid = settle(ops.FeaturePyramidNetwork([4, 8], 6))
    made = pyramid({"a": draw(1, 4, 16, 16), "b": draw(1, 8, 8, 8)})
    yield from made.items()
    yield "squeeze", settle(ops.SqueezeExcitation(8, 2))(draw(2, 8, 4, 4))
    yield "depth", ops.stochastic_depth(draw(2, 3), 0.0, "row")
    yield (
        "focal",
        ops.sigmoid_focal_loss(draw(4, 3), (draw(4, 3, seed=1) > 0).float(), reduction="mean"),
    )
    pool = ops.MultiScaleRoIAlign(["a", "b"], 3, 2)
    yield "levels", pool(made, [boxes(4)], [(32, 32)])


@task("transforms of pictures and tensors, v1")
def transforms():
    change = v1.Compose(
        [v1.Resize(32), v1.CenterCrop(28), v1.ToTensor(), v1.Normalize([0.5] * 3, [0.2] * 3)]
    )
    yield "picture", change(picture())
    image = v1.functional.to_tensor(picture())
    yield "antialiased", v1.functional.resize(image, [17, 23], antialias=True)
    yield "plain", v1.functional.resize(image, [17, 23], antialias=False)
    yield "rotated", v1.functional.rotate(image, 30.0)
    yield (
        "perspective",
        v1.functional.perspective(
            image, [[0, 0], [55, 0], [55, 39], [0, 39]], [[4, 2], [50, 0], [55, 39], [2, 36]]
        ),
    )
    for name in ("brightness", "contrast", "saturation", "hue", "gamma"):
        by = 0.2 if name == "hue" else 1.4
        yield name, getattr(v1.functional, f"adjust_{name}")(image, by)
    yield "blurred", v1.functional.gaussian_blur(image, [5, 5], [1.2, 1.2])
    yield "equalized", v1.functional.equalize((image * 255).to(torch.uint8))


@task("transforms v2: images, boxes and masks together, antialiasing, uint8")
def transforms_v2():
    from torchvision import tv_tensors

    image = v2.functional.pil_to_tensor(picture())
    change = v2.Compose(
        [
            v2.Resize((24, 30), antialias=True),
            v2.CenterCrop(20),
            v2.RandomHorizontalFlip(1.0),
            v2.ToDtype({tv_tensors.Image: torch.float32, "others": None}, scale=True),
        ]
    )
    found = tv_tensors.BoundingBoxes(boxes(3, 40.0), format="XYXY", canvas_size=(40, 56))
    mask = tv_tensors.Mask(choose(2, 1, 40, 56))
    made = change({"image": tv_tensors.Image(image), "boxes": found, "mask": mask})
    yield "types", [type(made[k]).__name__ for k in ("image", "boxes", "mask")]
    for name, value in made.items():
        yield name, value.as_subclass(torch.Tensor)
    yield (
        "bicubic",
        v2.functional.resize(
            image, [21, 33], interpolation=v2.InterpolationMode.BICUBIC, antialias=True
        ),
    )
    yield (
        "affine",
        v2.functional.affine(image, angle=15.0, translate=[2, 3], scale=1.1, shear=[5.0, 0.0]),
    )
    yield "posterized", v2.functional.posterize(image, 3)
    yield "solarized", v2.functional.solarize(image, 100)
    yield "sharp", v2.functional.adjust_sharpness(image, 1.7)
    yield "jpeg shape", list(v2.functional.pad(image, [1, 2, 3, 4], padding_mode="reflect").shape)


@task("RandAugment, TrivialAugment, MixUp, CutMix keep shapes and types")
def augmentations():
    torch.manual_seed(0)
    image = v2.functional.pil_to_tensor(picture())
    for change in (v2.RandAugment(), v2.TrivialAugmentWide(), v2.AugMix(), v2.AutoAugment()):
        made = change(image)
        yield type(change).__name__, [list(made.shape), str(made.dtype)]
    for change in (v2.MixUp(num_classes=4), v2.CutMix(num_classes=4)):
        images, targets = change(draw(4, 3, 8, 8), torch.tensor([0, 1, 2, 3]))
        yield type(change).__name__, [list(images.shape), list(targets.shape)]
        yield f"{type(change).__name__} total", float(targets.sum())


@task("image files: ImageFolder, save_image, make_grid, draw_bounding_boxes")
def files():
    with tempfile.TemporaryDirectory() as folder:
        for label in ("cat", "dog"):
            (Path(folder) / label).mkdir()
            for k in range(2):
                picture(seed=k).save(Path(folder) / label / f"{k}.png")
        data = datasets.ImageFolder(folder, v1.Compose([v1.Resize(16), v1.ToTensor()]))
        yield "classes", data.classes
        loader = torch.utils.data.DataLoader(data, 4)
        images, labels = next(iter(loader))
        yield "images", images
        yield "labels", labels
        torchvision.utils.save_image(images, f"{folder}/grid.png", nrow=2)
        yield "size", list(Image.open(f"{folder}/grid.png").size)
    yield "grid", torchvision.utils.make_grid(images, nrow=2, normalize=True)
    marked = torchvision.utils.draw_bounding_boxes(
        (images[0] * 255).to(torch.uint8), torch.tensor([[1.0, 1, 9, 9]]), colors="red"
    )
    yield "marked", marked


@task("image decoding: encode and decode PNG and JPEG")
def decoding():
    from torchvision.io import ImageReadMode, decode_image, read_image

    with tempfile.TemporaryDirectory() as folder:
        picture().save(f"{folder}/a.png")
        picture().convert("L").save(f"{folder}/b.png")
        picture().save(f"{folder}/c.jpg", quality=95)
        yield "png", read_image(f"{folder}/a.png")
        yield "gray", read_image(f"{folder}/b.png")
        yield "as rgb", read_image(f"{folder}/b.png", ImageReadMode.RGB)
        data = torch.frombuffer(bytearray(Path(f"{folder}/a.png").read_bytes()), dtype=torch.uint8)
        yield "decoded", decode_image(data, ImageReadMode.GRAY)
        yield "jpeg", read_image(f"{folder}/c.jpg").float().mean()
        image = read_image(f"{folder}/a.png")
        torchvision.io.write_png(image, f"{folder}/d.png")
        yield "written", bool((read_image(f"{folder}/d.png") == image).all())
        torchvision.io.write_jpeg(image, f"{folder}/e.jpg", quality=95)
        yield "close", bool((read_image(f"{folder}/e.jpg").float() - image).abs().mean() < 4)


@task("feature extraction by torch.fx")
def extraction():
    from torchvision.models.feature_extraction import create_feature_extractor

    model = settle(models.resnet18(num_classes=5)).eval()
    taken = create_feature_extractor(model, {"layer1": "a", "layer3.0.relu": "b", "avgpool": "c"})
    yield from taken(draw(1, 3, 64, 64)).items()
    swin = models.SwinTransformer([4, 4], 16, [2, 2], [2, 4], [4, 4], num_classes=5)
    taken = create_feature_extractor(settle(swin).eval(), {"features.1": "d"})
    made = taken(draw(1, 3, 32, 32))["d"]
    made.square().mean().backward()
    yield "swin", made
    yield "swin's gradients, those of its tables of places among them", gradients(taken)
