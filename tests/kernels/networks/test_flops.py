"""FLOPs from shapes, each worked out by hand."""

import pytest

from kernels.networks import flops


def test_a_matrix_product_counts_multiplications_and_additions():
    assert flops.matrix_product(m=3, n=5, k=7) == 2 * 105
    assert flops.matrix_product(m=3, n=5, k=7, count=4) == 4 * 2 * 105


@pytest.mark.parametrize(
    ("equation", "a", "b", "product"),
    [
        ("mk,kn->mn", (3, 7), (7, 5), (3, 5, 7, 1)),
        ("abc,cde->abde", (2, 6, 9), (9, 4, 8), (12, 32, 9, 1)),  # attention's queries: 2 x 6 rows, 4 heads of 8
        (
            "aecd,abcd->acbe",
            (2, 6, 4, 8),
            (2, 5, 4, 8),
            (6, 5, 8, 8),
        ),  # scores of 6 keys and 5 queries, 2 samples x 4 heads
        ("...x,xy->...y", (2, 6, 9), (9, 5), (12, 5, 9, 1)),
        ("...ij,...jk->...ik", (2, 4, 3, 7), (2, 4, 7, 5), (3, 5, 7, 8)),
        (
            "...ij,...jk->...ik",
            (4, 3, 7),
            (2, 4, 7, 5),
            (3, 5 * 2, 7, 4),
        ),  # the longer ellipsis has a dimension of its own
        ("ij,k->i", (3, 7), (5,), (3, 1, 35, 1)),  # labels of one array that are summed
    ],
)
def test_an_einsum_as_matrix_products(equation, a, b, product):
    assert flops.einsum_product(equation, a, b) == product


def test_convolutions_in_one_to_three_dimensions():
    # CIFAR-10's first layer: 32 images, 32 x 32 positions, windows of 3 x 3 over 3 channels, 32 filters
    assert flops.convolution(images=32, positions=(32, 32), window=(3, 3), channels=3, filters=32) == 56_623_104
    assert flops.convolution(images=2, positions=(7,), window=(5,), channels=4, filters=6) == 2 * 2 * 7 * 5 * 4 * 6
    volume = flops.convolution(images=1, positions=(4, 5, 6), window=(3, 3, 3), channels=2, filters=8)
    assert volume == 2 * 120 * 27 * 2 * 8


def test_a_transform_of_8_points_takes_120():
    assert flops.fourier_transform(transforms=1, points=8, real=False) == 120
    assert flops.fourier_transform(transforms=6, points=8, real=True) == 360
    assert flops.fourier_transform(transforms=6, points=1, real=False) == 0


def test_passes():
    assert flops.pooling(outputs=16, window=(1, 2, 2, 1)) == 16 * 3
    assert flops.reduction(inputs=100) == 100
    assert flops.scatter(updates=12) == 12
    assert flops.element_wise(elements=10) == 10
    assert flops.element_wise(elements=10, flops_an_element=12) == 120
