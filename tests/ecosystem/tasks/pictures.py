"""kornia, segmentation-models-pytorch, MONAI."""

import torch
from task import choose, draw, gradients, settle, task


@task("kornia: filters, colours, geometry with gradients")
def kornia_functions():
    import kornia as K

    image = draw(2, 3, 24, 32).sigmoid().requires_grad_()
    made = K.filters.gaussian_blur2d(image, (5, 5), (1.5, 1.5))
    made.square().mean().backward()
    yield "blur", made
    yield "gradient", image.grad
    image = image.detach()
    yield "sobel", K.filters.sobel(image)
    yield "median", K.filters.median_blur(image, (3, 3))
    yield "canny", K.filters.canny(image)[0]
    yield "hsv", K.color.rgb_to_hsv(image)
    yield "lab", K.color.rgb_to_lab(image)
    yield "equalized", K.enhance.equalize_clahe(image, grid_size=(2, 2))
    turn = K.geometry.get_rotation_matrix2d(
        torch.tensor([[16.0, 12.0]]), torch.tensor([20.0]), torch.ones(1, 2)
    )
    yield "warped", K.geometry.warp_affine(image[:1], turn, (24, 32))
    yield "resized", K.geometry.resize(image, (12, 16), antialias=True)
    points = draw(1, 8, 2).sigmoid() * 20
    yield "homography", K.geometry.find_homography_dlt(points, points * 1.1 + 1)
    yield "ssim", K.metrics.ssim(image, image.flip(-1), 5)
    yield "dice", K.losses.dice_loss(draw(2, 3, 8, 8), choose(3, 2, 8, 8))
    yield "distance", K.contrib.distance_transform((draw(1, 1, 12, 12) > 1).float())
    yield "eroded", K.morphology.erosion(image, torch.ones(3, 3))


@task("kornia: augmentations with fixed parameters, feature detectors")
def kornia_augmentations():
    import kornia as K

    torch.manual_seed(0)
    image = draw(2, 3, 24, 32).sigmoid()
    change = K.augmentation.AugmentationSequential(
        K.augmentation.RandomHorizontalFlip(p=1.0),
        K.augmentation.ColorJitter(0.0, 0.0, 0.0, 0.0, p=1.0),
        data_keys=["input", "mask"],
    )
    made, mask = change(image, image[:, :1])
    yield "flipped", made
    yield "mask", mask
    yield "random shape", list(K.augmentation.RandomAffine(20.0, p=1.0)(image).shape)
    yield "harris", K.feature.harris_response(image[:, :1])
    yield "descriptors", K.feature.SIFTDescriptor(16)(image[:, :1, :16, :16])


@task("segmentation-models-pytorch: Unet, FPN, DeepLabV3+ and losses")
def segmentation():
    import segmentation_models_pytorch as smp

    for name in ("Unet", "FPN", "DeepLabV3Plus", "UnetPlusPlus"):
        model = settle(getattr(smp, name)("resnet18", encoder_weights=None, classes=3)).eval()
        made = model(draw(1, 3, 64, 64))
        yield name, made
    truth = choose(3, 1, 64, 64)
    for loss in (smp.losses.DiceLoss("multiclass"), smp.losses.FocalLoss("multiclass"),
                 smp.losses.LovaszLoss("multiclass"),
                 smp.losses.TverskyLoss("multiclass")):  # fmt: skip
        yield type(loss).__name__, loss(made.detach(), truth)
    loss = smp.losses.JaccardLoss("multiclass")(made, truth)
    loss.backward()
    yield "gradients", gradients(model)
    stats = smp.metrics.get_stats(made.argmax(1), truth, mode="multiclass", num_classes=3)
    yield "iou", smp.metrics.iou_score(*stats, reduction="micro")


@task("MONAI: UNet, SwinUNETR's parts, losses, transforms, sliding windows")
def monai_parts():
    from monai.inferers import sliding_window_inference
    from monai.losses import DiceCELoss, GeneralizedDiceLoss
    from monai.metrics import DiceMetric
    from monai.networks.nets import BasicUNet, DenseNet121, UNet
    from monai.transforms import Compose, NormalizeIntensity, RandFlip, Resize, ScaleIntensity

    net = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2))
    settle(net)
    x, y = draw(1, 1, 16, 16, 16), choose(2, 1, 1, 16, 16, 16)
    loss = DiceCELoss(to_onehot_y=True, softmax=True)(net(x), y)
    loss.backward()
    yield "loss", loss.item()
    yield "gradients", gradients(net)
    net.eval()
    with torch.no_grad():
        yield "windows", sliding_window_inference(draw(1, 1, 20, 20, 20), (16, 16, 16), 1, net)
    yield (
        "basic",
        settle(BasicUNet(2, 1, 2, features=(4, 4, 8, 8, 8, 4))).eval()(draw(1, 1, 32, 32)),
    )
    yield "dense", settle(DenseNet121(2, 1, 3)).eval()(draw(1, 1, 64, 64))
    one = torch.nn.functional.one_hot(y[:, 0], 2).permute(0, 4, 1, 2, 3).float()
    yield "generalized", GeneralizedDiceLoss()(net(x).softmax(1), one)
    metric = DiceMetric()
    metric(y_pred=one, y=one.flip(2))
    yield "dice", metric.aggregate()
    change = Compose([ScaleIntensity(), NormalizeIntensity(), RandFlip(1.0, 0), Resize((8, 8))])
    yield "changed", torch.as_tensor(change(draw(1, 12, 12))).as_subclass(torch.Tensor)
