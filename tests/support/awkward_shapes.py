"""Shapes at which a kernel may go wrong: no multiple of any tile, one row, one channel."""

# 1 x 1 images, one channel and three, odd ones, a filter that is not square
AWKWARD_CONVS = [(1, 1, 1, 1, 1, 1, 1), (3, 1, 1, 5, 7, 3, 3), (2, 9, 8, 3, 5, 3, 3), (2, 6, 11, 1, 4, 5, 2)]
AWKWARD_CONVS += [(3, 5, 5, 4, 6, 1, 1)]
