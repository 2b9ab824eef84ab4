"""The transfer half of the small-dataset study, on copies whose law is known: every number worked out by hand."""

from math import prod

import pytest
from fake_measurements import row
from msgspec.structs import replace

from analysis.crossover import transfer_study
from kernels import networks
from kernels.problems import Transfer

CUPY = "transfer/cupy/array"
MNIST = next(d for d in transfer_study.DATA if d.name == "MNIST")
PEAKS = next(d for d in transfer_study.DATA if d.name == "peaks")


def rows(kernel=CUPY, memory="pageable", call=10e-6, rate=10e9, sizes=None, **fields):
    seconds = {n: float(call + n / rate) for n in sizes or transfer_study.sizes()}
    return [row(kernel, Transfer("h2d", n, memory), s, device="gpu:0", **fields) for n, s in seconds.items()]


def cost(measurements, data, dtype, batch, way="ndarray.set"):
    wanted = data, dtype, batch, way
    (found,) = [c for c in transfer_study.costs(measurements) if (c.data, c.dtype, c.batch, c.method) == wanted]
    return found


def test_data_sets_have_the_sizes_of_their_articles():
    """A network trained on a data set takes samples of its shape."""
    seeds = {seed: d for d in transfer_study.DATA for seed in d.seeds}
    fitting = [n for n in networks.NETWORKS.values() if n.seed in seeds]
    assert "cifar10-cnn" in {n.name for n in fitting}
    for network in fitting:
        assert prod(network.input) == prod(seeds[network.seed].shape), network.name
    sizes = {d.name: (d.nbytes("float32", d.samples), d.nbytes("float32", d.batch)) for d in transfer_study.DATA}
    assert sizes["CIFAR-10"] == (614_400_000, 393_216)  # 50,000 x 32 x 32 x 3 x 4; 32 of them 384 KiB
    assert sizes["MNIST"] == (188_160_000, 100_352)  # 60,000 x 28 x 28 x 4; 32 of them 98 KiB
    assert sizes["peaks"] == (320_000, 320_000)  # 40,000 x 2 x 4, all in one batch
    assert sizes["cross-validation"][0] == 316_000_000
    cifar = transfer_study.DATA[0]
    assert cifar.nbytes("float64", 50_000) == 1_228_800_000  # the 1.2 GB of the article's inputs
    assert cifar.nbytes("uint8", 1) == 3072
    found = transfer_study.sizes()
    assert found == sorted(set(found)) and found[0] == transfer_study.CALL_ALONE and len(found) < 40
    # 32, 60,000 images; float64, uint8; 16 left
    assert {100_352, 188_160_000, 376_320_000, 47_040_000, 196_608} <= set(found)
    assert {12_288, 3_145_728, 614_400_000} <= set(found)  # one image of CIFAR-10, 256, all
    assert {8, 256, 2048, 320_000} <= set(found)  # one point of peaks, 32, 256, all


@pytest.mark.parametrize(("samples", "batches"), [(255, (1, 8, 32, 64, 255)), (256, (1, 8, 32, 64, 256))])
def test_batches_stay_below_the_samples(samples, batches):
    assert replace(MNIST, samples=samples).batches() == batches
    assert replace(MNIST, samples=samples, batch=100).batches() == (*batches[:-1], 100, samples)


def test_costs_by_hand():
    """10 µs a call and 10 GB/s: 1,875 calls of 98 KiB are 18.75 ms of calls and 18.816 ms of bytes."""
    c = cost(rows(), MNIST, "float32", 32)
    assert (c.calls, c.how) == (1875, "measured")
    assert c.call.value == pytest.approx(20.0352e-6) and c.epoch.value == pytest.approx(37.566e-3)
    assert c.calls_alone.value == pytest.approx(18.75e-3, rel=1e-3)
    assert c.whole.value == pytest.approx(18.826e-3)
    assert c.epoch.low <= c.epoch.value <= c.epoch.high
    # 50,000 images in batches of 32 are 1,562 whole ones and one of 16: 196,608 bytes
    c = cost(rows(), transfer_study.DATA[0], "float32", 32)
    assert c.calls == 1563 and c.calls_alone.value == pytest.approx(1563 * 10e-6, rel=1e-4)
    assert c.epoch.value == pytest.approx(1562 * (10e-6 + 393_216 / 10e9) + 10e-6 + 196_608 / 10e9)
    assert c.how == "measured"
    c = cost(rows(), MNIST, "float32", 64)
    assert c.how == "interpolated" and c.call.value == pytest.approx(10e-6 + 200_704 / 10e9, rel=1e-3)
    c = cost(rows(sizes=[1 << power for power in range(2, 27)]), MNIST, "float32", 32)
    assert c.how == "extrapolated" and c.whole.value == pytest.approx(18.826e-3, rel=1e-2)
    few = rows(sizes=[4, 100_352])
    c = cost(few, MNIST, "float32", 32)
    assert c.whole is None and c.calls_alone.value == pytest.approx(18.75e-3, rel=1e-3)
    assert [x.batch for x in transfer_study.costs(few) if (x.data, x.dtype) == (MNIST, "float32")] == [32]
    large = cost(rows(sizes=[100_352]), MNIST, "float32", 32)
    assert large.calls_alone is None, "98 KiB are not the call alone"


def test_copies_back_are_no_way_to_the_device():
    """Of 98 KiB: 20 µs to the device; 5 µs back, 9 µs beside a kernel."""
    back = row(CUPY, Transfer("d2h", 100_352, "pageable"), 5e-6, device="gpu:0")
    beside = row(CUPY, Transfer("h2d", 100_352, "pageable", compute="fma"), 9e-6, device="gpu:0")
    (method,) = transfer_study.copy_methods([*rows(), back, beside])
    time = method.time(100_352)
    expected = ("ndarray.set", "measured", pytest.approx(20.0352e-6))
    assert (method.name, time.origin, time.seconds.value) == expected
    assert transfer_study.copy_methods([back, beside]) == []


@pytest.mark.parametrize(
    ("batch", "calls", "words"),
    [
        (1, 60_000, "one image at a time"),
        (2, 30_000, "in batches of 2"),
        (2_048, 30, "in batches of 2,048"),
        (60_000, 1, "in one piece"),
    ],
)
def test_batches_in_words(batch, calls, words):
    found = replace(cost(rows(), MNIST, "float32", 32), batch=batch)
    assert (found.calls, found.batches) == (calls, words)


def test_other_types_compare_at_the_data_sets_batch():
    """uint8 moves a quarter of the bytes: without calls' own time a quarter of float32's epoch."""
    found = [c for c in transfer_study.costs(rows(call=0.0)) if c.data == MNIST]
    told = [line for line in transfer_study.sentences(found) if "float32 copies" in line]
    own = {c.dtype: c for c in found if c.batch == MNIST.batch and c.method == found[0].method}
    assert len(told) == len(own) - 1
    (line,) = [line for line in told if " as uint8: " in line]
    assert line.startswith(f"MNIST {own['uint8'].batches} as uint8: ") and line.endswith("0.250x the float32 copies.")
