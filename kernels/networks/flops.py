"""FLOPs of operations, from the shapes of their arrays. An addition, a multiplication, a comparison and a root count 1 alike."""

import math
import string
from collections.abc import Sequence

Sizes = Sequence[int]


def matrix_product(m: int, n: int, k: int, count: int = 1) -> int:
    """2 m n k for each of `count` products of an m x k matrix and a k x n one."""
    return 2 * m * n * k * count


def einsum_product(equation: str, a: Sizes, b: Sizes) -> tuple[int, int, int, int]:
    """(m, n, k, count) of the matrix products that an einsum of two arrays is equal to: `count` products of m x k and k x n.

    equation: `ab,bc->ac`, with ellipses or without. a, b: the arrays' shapes. A label of both arrays belongs to `count` if
    the result has it, else to `k`. A label of one array belongs to `m` or `n` if the result has it; else it is summed over,
    and belongs to `k`.
    """
    operands, _, result = _spelled_out(equation, len(a), len(b)).partition("->")
    labels_a, _, labels_b = operands.partition(",")
    sizes_a = dict(zip(labels_a, a, strict=True))
    sizes_b = dict(zip(labels_b, b, strict=True))
    sides = {"m": 1, "n": 1, "k": 1, "count": 1}
    for label in sizes_a | sizes_b:
        if label not in result:
            side = "k"
        elif label in sizes_a and label in sizes_b:
            side = "count"
        else:
            side = "m" if label in sizes_a else "n"
        sides[side] *= max(sizes_a.get(label, 1), sizes_b.get(label, 1))
    return sides["m"], sides["n"], sides["k"], sides["count"]


def _spelled_out(equation: str, rank_a: int, rank_b: int) -> str:
    """The equation with letters for its ellipses; those of several arrays are aligned at their last dimension.

    rank_a, rank_b: dimensions of the two arrays.
    """
    operands, _, result = equation.partition("->")
    labels_a, _, labels_b = operands.partition(",")
    unused = [letter for letter in string.ascii_uppercase if letter not in equation]
    hidden_a = _hidden(labels_a, rank_a)
    hidden_b = _hidden(labels_b, rank_b)
    letters = "".join(unused[: max(hidden_a, hidden_b)])
    spelled_a = _with_letters(labels_a, letters, hidden_a)
    spelled_b = _with_letters(labels_b, letters, hidden_b)
    return f"{spelled_a},{spelled_b}->{_with_letters(result, letters, len(letters))}"


def _hidden(labels: str, rank: int) -> int:
    """Dimensions that an ellipsis stands for."""
    return rank - (len(labels) - len("...")) if "..." in labels else 0


def _with_letters(labels: str, letters: str, hidden: int) -> str:
    before, _, after = labels.partition("...")
    return before + letters[len(letters) - hidden :] + after


def convolution(images: int, positions: Sizes, window: Sizes, channels: int, filters: int) -> int:
    """FLOPs of a convolution in 1 to 3 dimensions, and of each of its gradients: 2 x images x positions x window x channels x
    filters.

    positions: sides of the output (of a transposed convolution, whose forward pass is the gradient of a convolution, of its
    input). window: sides of the filter. channels: of one group. A dilated window counts its taps; products with the padding's
    zeros count.
    """
    return 2 * images * math.prod(positions) * math.prod(window) * channels * filters


def fourier_transform(transforms: int, points: int, real: bool) -> int:
    """FLOPs of `transforms` Fourier transforms of N = `points` points: 5 N log2 N each, half of that where one side is real.

    Source: FFTW's benchFFT, "mflops".
    """
    if points < 2:
        return 0
    complex_flops = 5 * transforms * points * math.log2(points)
    return round(complex_flops / 2 if real else complex_flops)


def pooling(outputs: int, window: Sizes) -> int:
    """A comparison or an addition for each but the first number of a window."""
    return outputs * (math.prod(window) - 1)


def reduction(inputs: int) -> int:
    """One for each number that goes in."""
    return inputs


def scatter(updates: int) -> int:
    """An addition for each number that is scattered; a gather computes nothing."""
    return updates


def element_wise(elements: int, flops_an_element: float = 1) -> int:
    """So many for each element of the largest array."""
    return int(elements * flops_an_element)
