"""Parameters and products of published convolutional networks, counted layer by layer."""

from dataclasses import dataclass


@dataclass
class Counter:
    """Parameters and multiply-accumulates of the layers so far.

    Parameters
    ----------
    parameters, macs
        Counts; products are those of one image.
    """

    parameters: int = 0
    macs: int = 0

    def conv(self, inputs: int, outputs: int, kernel: int, side: int, *, norm: bool = True) -> None:
        """Add a convolution of a square kernel to ``side`` by ``side`` outputs; with a norm it has no bias."""
        products = inputs * outputs * kernel**2
        self.parameters += products + outputs * (2 if norm else 1)
        self.macs += products * side**2

    def linear(self, inputs: int, outputs: int) -> None:
        """Add a fully connected layer with biases."""
        self.parameters += (inputs + 1) * outputs
        self.macs += inputs * outputs


def resnet50(side: int = 224, classes: int = 1000, *, cifar_stem: bool = False) -> Counter:
    """Count ResNet-50 with the stride in the 3 x 3 layers (He et al. 2015; "v1.5").

    Parameters
    ----------
    side
        Of the image, pixels.
    classes
        Outputs.
    cifar_stem
        One 3 x 3 layer of stride 1 in place of 7 x 7, stride 2, and pooling.
    """
    count = Counter()
    if cifar_stem:
        count.conv(3, 64, 3, side)
    else:
        count.conv(3, 64, 7, _half(side))
        side = _half(_half(side))
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            before = side
            if block == 0 and stage:
                side = _half(side)
            count.conv(inputs, width, 1, before)
            count.conv(width, width, 3, side)
            count.conv(width, 4 * width, 1, side)
            if block == 0:
                count.conv(inputs, 4 * width, 1, side)
            inputs = 4 * width
    count.linear(inputs, classes)
    return count


def vgg(convolutions: tuple[int, ...], side: int = 224) -> Counter:
    """Count VGG (Simonyan and Zisserman 2014) with so many 3 x 3 layers before each pooling; no norms."""
    count = Counter()
    inputs = 3
    for number, width in zip(convolutions, (64, 128, 256, 512, 512), strict=True):
        for _ in range(number):
            count.conv(inputs, width, 3, side, norm=False)
            inputs = width
        side //= 2
    for before, after in ((512 * 7 * 7, 4096), (4096, 4096), (4096, 1000)):
        count.linear(before, after)
    return count


def alexnet() -> Counter:
    """Count AlexNet in its form for one GPU (Krizhevsky 2014) at 224 pixels."""
    count = Counter()
    for inputs, outputs, kernel, side in (
        (3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13),
    ):  # fmt: skip
        count.conv(inputs, outputs, kernel, side, norm=False)
    for before, after in ((256 * 6 * 6, 4096), (4096, 4096), (4096, 1000)):
        count.linear(before, after)
    return count


_INCEPTIONS = (  # side, inputs, 1x1, 3x3 reduce, 3x3, double reduce, double, pool
    (28, 192, 64, 96, 128, 16, 32, 32),
    (28, 256, 128, 128, 192, 32, 96, 64),
    (14, 480, 192, 96, 208, 16, 48, 64),
    (14, 512, 160, 112, 224, 24, 64, 64),
    (14, 512, 128, 128, 256, 24, 64, 64),
    (14, 512, 112, 144, 288, 32, 64, 64),
    (14, 528, 256, 160, 320, 32, 128, 128),
    (7, 832, 256, 160, 320, 32, 128, 128),
    (7, 832, 384, 192, 384, 48, 128, 128),
)


def googlenet() -> Counter:
    """Count GoogLeNet (Szegedy et al. 2014) at 224 pixels as torchvision has it: norms, 3 x 3 for 5 x 5, one head."""
    count = Counter()
    count.conv(3, 64, 7, 112)
    count.conv(64, 64, 1, 56)
    count.conv(64, 192, 3, 56)
    for side, inputs, one, reduce, three, reduce_more, more, pool in _INCEPTIONS:
        count.conv(inputs, one, 1, side)
        count.conv(inputs, reduce, 1, side)
        count.conv(reduce, three, 3, side)
        count.conv(inputs, reduce_more, 1, side)
        count.conv(reduce_more, more, 3, side)
        count.conv(inputs, pool, 1, side)
    count.linear(1024, 1000)
    return count


def _half(side: int) -> int:
    return (side + 1) // 2
