"""Shapes at which a kernel may go wrong: no multiple of any tile, one row, one channel."""

import itertools

from kernels.problems import Conv

# 1 x 1 images, one channel and three, odd ones, a filter that is not square
AWKWARD_CONVS = [(1, 1, 1, 1, 1, 1, 1), (3, 1, 1, 5, 7, 3, 3), (2, 9, 8, 3, 5, 3, 3), (2, 6, 11, 1, 4, 5, 2)]
AWKWARD_CONVS += [(3, 5, 5, 4, 6, 1, 1)]
SHAPES = [(2, 5, 6, 4, 6, 3, 3), (1, 1, 1, 1, 1, 1, 1), (3, 7, 5, 2, 4, 1, 1)]
SHAPES += [(2, 4, 4, 2, 2, 2, 3), (1, 6, 6, 4, 4, 5, 5)]


def problems():
    for shape, stride, pad, groups, layout, direction in itertools.product(
        SHAPES, (1, 2, 3), ("same", "valid", 4), (1, 2), Conv.LAYOUTS, Conv.DIRECTIONS
    ):
        if shape[3] % groups == 0 and (pad != "valid" or (shape[1] >= shape[5] and shape[2] >= shape[6])):
            yield Conv(*shape, stride, pad, groups, layout, direction)
