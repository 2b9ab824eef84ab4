"""Whether the texts of a picture can be read: none over another."""

import itertools


def boxes(figure):
    """(text, box) of everything written in a figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    unseen = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for limits in [sorted(axis.get_view_interval())]
        for tick in axis.get_major_ticks()
        if not limits[0] <= tick.get_loc() <= limits[1]
        for label in (tick.label1, tick.label2)
    }
    found = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in unseen]
    return [(t.get_text(), Text.get_window_extent(t, renderer)) for t in found]


def legible(figure) -> None:
    """Nothing that is written in a figure covers another or leaves it."""
    written = boxes(figure)
    assert len(written) > 3
    for text, box in written:
        assert box.x0 >= 0 and box.y0 >= 0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1, text
    for (a, first), (b, second) in itertools.combinations(written, 2):
        assert not first.padded(-1).overlaps(second.padded(-1)), (a, b)
