"""Laws of feeding a step, recovered from planted ones; what share of a step it is, and small data sets in words."""

import pytest
from fake_pipelines import BYTE, CALL, SAMPLE, fed, study, timed
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.report.charts import input_pipeline as charts
from analysis.report.charts.input_pipeline import pipeline_chart
from analysis.report.material import Material
from analysis.report.sections.movement import input_pipeline_section
from analysis.report.sections.training import small_section
from analysis.text import input_pipeline
from analysis.training import pipeline_costs
from kernels import networks
from kernels.problems import Training, Transfer
from tests.bench import training as bench
from workloads.records import Measurement, Samples, Settings


def test_a_planted_law_is_recovered():
    law, there = pipeline_costs.fits(study())
    assert (law.call.value, law.sample.value) == (pytest.approx(CALL), pytest.approx(SAMPLE))
    assert law.bandwidth.value == pytest.approx(5e9) and law.error < 1e-9
    assert law.seconds(2048, 25_165_824).value == pytest.approx(0.6e-3 + 0.2048e-3 + 5.0331648e-3)
    assert (law.low, law.high) == (4 * 32 * 784, 4 * 2048 * 3072)
    assert there.call.value == pytest.approx(CALL) and there.byte.value == pytest.approx(0, abs=1e-15)
    assert law.beyond_call(2048, 25_165_824).value == pytest.approx(0.2048e-3 + 5.0331648e-3)
    assert pipeline_costs.fits(study(sizes=pipeline_costs.SIZES[: pipeline_costs.FEWEST - 1])) == ()


def test_an_uncertain_row_hardly_moves_a_law():
    exact, wild = study(("numpy",)), fed("numpy", 64, 784, slower=9.0)
    (own,) = wild.samples
    first, *rest = own.seconds
    wild = replace(wild, samples=(replace(own, seconds=(first / 5, *rest[1:], 2 * first), block_sizes=(1, 1, 1, 1)),))
    sets = exact, [*exact, wild], [*exact, fed("numpy", 64, 784, slower=9.0)]
    law, beside, taken = (pipeline_costs.fits(rows)[0] for rows in sets)
    at, apart, trusted = (x.seconds(64, 200_704).value for x in (law, beside, taken))
    assert abs(apart / at - 1) < 0.005 < 0.05 < trusted / at - 1 and beside.error > 0.5, "a law says how far it is off"


def test_a_law_is_within_its_largest_miss():
    """A row that takes twice the law's step pulls the law up; the law still misses it by nearly a half, not by nearly all."""
    every = [*study(("numpy",)), fed("numpy", 64, 784, slower=2.0)]
    (law,) = pipeline_costs.fits(every)
    off = [
        abs(law.seconds(m.problem.batch, m.problem.nbytes).value / pipeline_costs.step_seconds(m).value - 1)
        for m in every
    ]
    assert max(off) == off[-1] and law.error == pytest.approx(off[-1]) and 0.3 < law.error < 0.5


def test_a_law_is_tested_on_unfitted_sizes():
    slower = [fed("numpy", *size, slower=1.25) for size in pipeline_costs.TEST_SIZES]
    (errors,) = bench.batches([*study(("numpy",)), *slower]).values()
    assert len(errors) == len(pipeline_costs.TEST_SIZES) and {round(error, 9) for error, _ in errors} == {0.2}
    assert not set(pipeline_costs.SIZES) & set(pipeline_costs.TEST_SIZES)


def test_the_rate_is_bytes_over_added_seconds():
    """2,048 images of 12,288 bytes in 0.2048 + 5.0332 ms."""
    (added,) = [line for line in input_pipeline.sentences(study()) if "from NumPy arrays" in line]
    assert added == "GPU: 2,048 CIFAR-10 images from NumPy arrays add 5.24 ms to a step: 4.80 GB/s."


def test_where_a_small_data_sets_time_goes():
    # A batch of 32 CIFAR-10 images as float32: 3.2 µs for its samples, 78.6432 µs for its 393,216 bytes.
    n, gpu, problem = 25_165_824, Settings("gpu:0"), Training("cifar10-cnn", 32, 1024, 4)
    once = {"import": 5.0, "device_start": 2.0, "build": 0.5, "compile": 4.5}
    training = timed("training/keras/fit", problem, 2e-3, "gpu:0", 8, lambda steps: 0.1, phases_s=once)
    copies = Samples("host-latency", (n / 50e9,) * 3, 1, (1, 1, 1), "3 visits")
    pinned = Measurement("transfer/cupy/array", Transfer("h2d", n, "pinned"), gpu, "ok", samples=(copies,))
    rows = [*study(), training, pinned]
    (share,) = pipeline_costs.shares(rows)
    double = replace(training, problem=replace(problem, dtype="float64"))  # cast before the first epoch
    assert pipeline_costs.shares([*study(), double])[0].pipeline_s == share.pipeline_s
    assert share.pipeline_s.value == pytest.approx(81.8432e-6) and share.share.value == pytest.approx(0.0409216)
    said = input_pipeline.sentences(rows) + input_pipeline.small_sentences(rows)
    assert said[0] == "GPU: 2,048 CIFAR-10 images from NumPy arrays add 5.24 ms to a step: 4.80 GB/s."
    assert said[1] == "CuPy copies as many bytes at 50.0 GB/s from pinned memory, so the link is not what limits."
    assert said[2] == "CIFAR-10 CNN, batch 32: the input pipeline is at most 4.1 % of a step of 2.00 ms on the GPU."
    own, other = training.fits
    noisy = replace(training, fits=(own, replace(other, later_epoch_s=(0.03, 0.048, 0.06))))
    assert input_pipeline.sentences([*study(), noisy]) == said[:1], "no share of a step of 0.7 to 3.8 ms"
    # 7 s of start-up, 5 of building and compiling, 0.1 of setup, 4 epochs of 40 ms and 32 steps: 12.516 s, fed 10.5 ms.
    assert said[3].startswith(
        "CIFAR-10 CNN, batch 32, 1,024 samples, 4 epochs: 12.5 s on the GPU, of which start-up and compilation are 96 %"
    )
    assert said[3].endswith("the input pipeline 0.084 %.") and "copies are not why" in said[4]
    assert markdown(small_section(Material(Analysis.from_rows(rows))))[:2] == [f"- {line}" for line in said[3:]]


def test_the_page_has_laws_and_points():
    def material(own):
        return Material(Analysis.from_rows(own))

    rows = [*study(), *study(("tf.data",), device="cpu")]
    (chart,) = pipeline_chart(rows)
    assert [view.label for view in chart.views] == ["GPU, float32", "CPU, float32"]
    assert len(chart.numbers.rows) == 15 and {row[-1] for row in chart.numbers.rows} == {"0 %"}
    assert any("| GPU | numpy | float32 | 600 µs |" in x for x in markdown(input_pipeline_section(material(rows))))
    few = rows[: pipeline_costs.FEWEST - 1]
    assert pipeline_chart(few) == [] == input_pipeline_section(material(few))
    assert any(input_pipeline.UNKNOWN[6:] in said for said in material(few).answer) and not input_pipeline_section(
        material([])
    )


def test_a_drawn_law_is_for_cifar10_images():
    """From 4 x 784 values to 2,048 x 3,072: 0.6 ms, 0.1 µs for each image of 12,288 bytes, and 5 GB/s."""
    (view,) = pipeline_chart(study(("numpy",)))[0].views
    points, law = view.traces
    assert (points.name, law.name) == ("numpy", "numpy, law") and law.x == pytest.approx(sorted(law.x))
    first, last = 4 * 32 * 784, 4 * 2048 * 3072
    assert (law.x[0], law.x[-1]) == pytest.approx((first, last))
    for nbytes, seconds in ((first, law.y[0]), (last, law.y[-1])):
        assert seconds == pytest.approx(CALL + nbytes / 12_288 * SAMPLE + nbytes * BYTE, rel=1e-4)


def test_each_pipeline_has_its_color():
    (view,) = pipeline_chart(study(("numpy", "tf.data", "generator")))[0].views
    colors = {t.name: t.color for t in view.traces}
    ways = [colors[name] for name in ("numpy", "tf.data", "generator")]
    assert len(set(ways)) == 3 and [colors[f"{name}, law"] for name in ("numpy", "tf.data", "generator")] == ways


@pytest.mark.parametrize(("slower", "off"), [(1.25, "20.0 %"), (0.8, "25.0 %")])
def test_a_law_misses_by_a_steps_share(slower, off):
    (law,) = pipeline_costs.fits(study(("numpy",)))
    m = fed("numpy", 64, 784, slower=slower)
    assert charts._cells(law, m, pipeline_costs.step_seconds(m))[-1] == off


def test_a_batch_is_at_most_the_data_set():
    """Of 100 CIFAR-10 images a batch of 4,096 has 100: 10 µs for the samples and 12,288 bytes each at 5 GB/s."""
    network = networks.find("cifar10-cnn")
    (law,) = pipeline_costs.fits(study(("numpy",)))
    seconds = [
        pipeline_costs.batch_seconds([law], "gpu:0", "numpy", Training("cifar10-cnn", batch, 100), network).value
        for batch in (4096, 100, 50)
    ]
    whole = 100 * SAMPLE + 100 * 12_288 * BYTE
    assert seconds == pytest.approx([whole, whole, whole / 2])
