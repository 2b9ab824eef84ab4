"""Copies and memory in charts."""

from types import SimpleNamespace

from fake_measurements import row

from analysis.report.charts import movement
from analysis.roofline import memory_levels
from kernels.problems import Stream


def law(direction: str, memory: str, kernel: str):
    return SimpleNamespace(direction=direction, host_memory=memory, kernel=f"transfer/{kernel}")


def key(device: str, threads: int | None, operation: str) -> memory_levels.Key:
    return memory_levels.Key(device=device, threads=threads, operation=operation)


def test_copies_that_behave_alike_are_drawn_once():
    laws = [
        law("h2d", "pinned", "cupy/memcpy_async"),
        law("h2d", "pinned", "cupy/array"),
        law("h2d", "registered", "cupy/memcpy_async"),
        law("d2h", "registered", "cupy/memcpy_async"),
        law("h2d", "pageable", "cupy/asarray"),
        law("h2d", "pageable", "cupy/array"),
        law("h2d", "pageable", "tensorflow/constant"),
    ]
    assert movement._drawn_laws(laws) == [laws[i] for i in (0, 3, 4, 5, 6)]
    assert movement._where("gpu:0", [key("gpu:0", None, "triad"), key("cpu", 1, "triad")]) == "GPU"
    both = [key("gpu:0", None, "triad"), key("gpu:1", None, "triad")]
    assert [movement._where(device, both) for device in ("gpu:1", "cpu")] == ["GPU 1", "CPU"]


def test_memory_is_drawn_by_its_most_measured_operation():
    """Of each device the fewest and the most threads; a curve of less than four sizes is none."""

    def rows(operation: str, count: int, threads: int) -> list:
        sizes = [2**20 * 2**i for i in range(count)]
        return [row("stream/numba/loop", Stream(operation, n), n / 1e10, threads=threads) for n in sizes]

    one = [*rows("copy", 5, 1), *rows("triad", 5, 1), *rows("read", 5, 1)]
    two = rows("triad", 6, 2)
    four = [*rows("triad", 4, 4), *rows("read", 5, 4), *rows("copy", 5, 4)]
    eight = rows("triad", 3, 8)
    assert list(movement._shown_curves([*one, *two, *four, *eight])) == [key("cpu", 1, "triad"), key("cpu", 4, "copy")]
