"""A crossing whose place is not known is shown as a band and in the words that say so, never as one number."""

import fake_measurements as fake
import msgspec
import pytest
from fake_crossovers import cpu_law, gpu_law, only
from fake_measurements import laws
from msgspec.structs import astuple

from analysis.analysis import Analysis
from analysis.crossover.answer import Crossing
from analysis.crossover.families import Family
from analysis.report.charts import chart, crossover
from analysis.report.charts.chart import winner_bands
from analysis.report.material import Material
from analysis.stats import Estimate
from analysis.text import answers, questions, sentences
from workloads.records import Loaded

LAYER = {"m": 0, "n": 512, "k": 3136, "layout": "nn"}
SHARP = Crossing(at=Estimate(103.0, 102.0, 104.0), below=96, above=128, to="gpu", widest_gap=1.33)
NOISY = Crossing(at=Estimate(480.0, 288.0, 721.0), below=256, above=2048, to="cpu", widest_gap=8.0)
WIDE = Crossing(at=Estimate(700.0, 650.0, 750.0), below=100, above=40_000, to="gpu", widest_gap=400.0)


def far_apart():
    """Squares at 10 and 1000 alone: the winner changes somewhere between."""
    return fake.laws(lambda n: n * 1e-6, lambda n: 1e-4 if n < 100 else 2e-4, (10, 1000))


def loaded():
    return Loaded((fake.run(fake.GPU_MACHINE),), tuple(far_apart()), 0, ())


@pytest.mark.parametrize(
    ("crossing", "words"),
    [(SHARP, "about n = 103 (102 to 104)"), (NOISY, "about n = 480 (288 to 721)"), (WIDE, "n = 100 to 40,000")],
)
def test_a_crossing_has_its_interval_in_a_bracket(crossing, words):
    assert sentences.crossing_size(crossing, "n") == words


def test_known_crossings_are_marked_uncertain_ones_shaded():
    assert chart.crossed([SHARP], "n") == {"lines": [(103.0, "about n = 103 (102 to 104)")], "bands": []}
    expected = {"lines": [(480.0, "")], "bands": [(288.0, 721.0, "CPU from about batch 480 (288 to 721)")]}
    assert chart.crossed([NOISY], "batch", "{} from ") == expected
    expected = {"lines": [], "bands": [(100.0, 40_000.0, "GPU from somewhere here")]}
    assert chart.crossed([WIDE], "samples", "{} from ") == expected


def test_a_wide_crossing_is_a_band():
    answer = only(far_apart())
    assert answer.kind == "gpu-from" and answer.crossings[0].wide
    assert chart.winner_bands(answer) == [chart.WinnerBand(low=10, high=1000, sign=0)]
    (run,) = crossover.data([Material(Analysis.from_loaded(loaded()))])["runs"]
    (use,) = run["precisions"][0]["forms"][0]["uses"]
    assert use["crossings"] == [] and use["spans"] == [[10.0, 1000.0, 0]]
    ((view,),) = [chart.views for chart in crossover.chart(Material(Analysis.from_loaded(loaded())))]
    assert view.lines == [] and view.bands == [(10.0, 1000.0, "can't tell")]
    found = questions.answered(Analysis.from_rows(far_apart()))
    said = {one.question: one.answer for one in found}["Is the GPU always faster?"]
    quick = "The GPU is 5.0x faster at n = 1,000, 10x slower at n = 10."
    assert said == f"With resident data the GPU starts to win between n = 10 and 1,000. {quick}"
    answer = msgspec.structs.replace(only(far_apart()), family=Family("matmul", "batch", ("m",), tuple(LAYER.items())))
    assert "the GPU wins from batch 10 to 1,000 in 2" in answers.summaries([answer, answer])[0]


def test_bands_meet_and_turn_at_the_crossing():
    answer = only(laws(cpu_law, gpu_law, [64, 128, 256], spread=0.02))
    at = answer.crossings[0].at
    bands = [astuple(band) for band in winner_bands(answer)]
    assert bands == [(64, at.low, -1), (at.low, at.high, 0), (at.high, 256, 1)]
    flat = only(laws(lambda n: {64: 0.5, 128: 1.0, 256: 2.0}[n], lambda n: 1.0, [64, 128, 256]))
    middles = [(64 * 128) ** 0.5, (128 * 256) ** 0.5]
    bands = [astuple(band) for band in winner_bands(flat)]
    assert bands == [(64, middles[0], -1), (middles[0], middles[1], 0), (middles[1], 256, 1)]
