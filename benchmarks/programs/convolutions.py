"""Convolutions of images, signals and volumes, each as somebody would write it first."""

from typing import Any

import adze as az

Image = az.Array[az.f32, "c h w"]
Kernels = az.Array[az.f32, "o c 3 3"]


# Images


@az.program
def convolution(image: Image, kernels: Kernels) -> az.Array[az.f32, "o h-2 w-2"]:
    """Each of several kernels at each place of an image with several channels."""
    (_, h, w), o = image.shape, kernels.shape[0]
    return az.generate((o, h - 2, w - 2), lambda f, y, x: az.sum(kernels[f] * image[:, y : y + 3, x : x + 3]))


@az.program
def convolution_squares(image: Image, kernels: Kernels) -> az.f32:
    return az.sum(convolution(image, kernels) ** 2)


@az.program
def pooled(image: Image, kernels: Kernels) -> az.Array[az.f32, "o (h-2)//2 (w-2)//2"]:
    """A convolution, its negative part cut off, and of each square of four the greatest."""
    found = az.maximum(convolution(image, kernels), 0.0)
    o, h, w = found.shape
    return az.generate((o, h // 2, w // 2), lambda f, y, x: az.max(found[f, 2 * y : 2 * y + 2, 2 * x : 2 * x + 2]))


@az.program
def pooled_squares(image: Image, kernels: Kernels) -> az.f32:
    return az.sum(pooled(image, kernels) ** 2)


@az.program
def strided(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "o c 3 3"]) -> Any:
    """A convolution at every second place of an image, along both axes."""
    (_, h, w), o = image.shape, kernels.shape[0]

    def entry(f: az.Expr, y: az.Expr, x: az.Expr) -> az.Expr:
        return az.sum(kernels[f] * image[:, 2 * y : 2 * y + 3, 2 * x : 2 * x + 3])

    return az.generate((o, (h - 3) // 2 + 1, (w - 3) // 2 + 1), entry)


@az.program
def strided_squares(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "o c 3 3"]) -> az.f32:
    return az.sum(strided(image, kernels) ** 2)


@az.program
def depthwise(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "c 3 3"]) -> az.Array[az.f32, "c h-2 w-2"]:
    """A kernel of its own for each channel."""

    def channel(plane: az.Expr, kernel: az.Expr) -> az.Expr:
        h, w = plane.shape
        return az.generate((h - 2, w - 2), lambda y, x: az.sum(kernel * plane[y : y + 3, x : x + 3]))

    return az.map(channel, image, kernels)


@az.program
def depthwise_squares(image: az.Array[az.f32, "c h w"], kernels: az.Array[az.f32, "c 3 3"]) -> az.f32:
    return az.sum(depthwise(image, kernels) ** 2)


# One dimension and three


@az.program
def convolution_1d(signal: az.Array[az.f32, "c n"], kernels: az.Array[az.f32, "o c 5"]) -> az.Array[az.f32, "o n-4"]:
    """Each of several kernels at each place of a signal with several channels."""
    n, o = signal.shape[1], kernels.shape[0]
    return az.generate((o, n - 4), lambda f, x: az.sum(kernels[f] * signal[:, x : x + 5]))


@az.program
def convolution_1d_squares(signal: az.Array[az.f32, "c n"], kernels: az.Array[az.f32, "o c 5"]) -> az.f32:
    return az.sum(convolution_1d(signal, kernels) ** 2)


@az.program
def convolution_3d(
    volume: az.Array[az.f32, "c p q r"], kernels: az.Array[az.f32, "o c 3 3 3"]
) -> az.Array[az.f32, "o p-2 q-2 r-2"]:
    """The same in three dimensions."""
    (_, p, q, r), o = volume.shape, kernels.shape[0]
    return az.generate(
        (o, p - 2, q - 2, r - 2),
        lambda f, z, y, x: az.sum(kernels[f] * volume[:, z : z + 3, y : y + 3, x : x + 3]),
    )


@az.program
def convolution_3d_squares(volume: az.Array[az.f32, "c p q r"], kernels: az.Array[az.f32, "o c 3 3 3"]) -> az.f32:
    return az.sum(convolution_3d(volume, kernels) ** 2)
