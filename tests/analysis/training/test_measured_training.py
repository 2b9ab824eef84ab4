"""One training has one number of seconds, wherever it is told: rows worked out by hand, then all stored ones of the H200."""

import functools
import pathlib

import pytest
from fake_predictions import sources
from fake_trainings import trained
from msgspec.structs import replace

from analysis.explain import explanation
from analysis.explain.request import Request
from analysis.explain.sources import Sources
from analysis.numbers import timed
from analysis.predict import profile
from analysis.text import training as words
from analysis.training import break_even
from analysis.training import measured_training as measured
from kernels.problems import Training

H200 = pathlib.Path(__file__).parents[3] / "reports/nvidia-h200"
PLANNED = Training("cifar10-cnn", 32, 50_000, 10)


def quick_suite() -> list:
    """A CPU's step of 5 ms after 1 s, a GPU's of 1 ms after 5 s and 3 s of compiling: 24 steps each, as in a quick suite."""
    laws = (("cpu", 5e-3, (1.0, 0.0, 0.0), 0.0), ("gpu:0", 1e-3, (5.0, 0.0, 0.0), 3.0))
    rows = []
    for device, step, once, compilation in laws:
        row = trained("cifar10-cnn", 32, 768, (0.0, 0.0, step), device=device, once=once)
        rows.append(replace(row, phases_s=row.phases_s | {"compile": compilation}))
    return rows


def test_summary_and_explanation_agree_on_short_rows():
    """50,000 samples are 1,562 batches and a smaller one, for which the GPU compiles once more: 5 + 2 x 3 + 15,630 x 1 ms."""
    rows = quick_suite()
    (pair,) = break_even.main_pairs(rows)
    assert break_even.planned_training(pair.setup) == PLANNED
    cpu, gpu = measured.both_sides(pair, break_even.trained(rows))
    assert measured.seconds(cpu, PLANNED).value == pytest.approx(1 + 15_630 * 5e-3)
    assert measured.seconds(gpu, PLANNED).value == pytest.approx(5 + 2 * 3 + 15_630 * 1e-3)
    explained = explanation.explain(Request(PLANNED), sources(*rows))
    assert [side.whole for side in explained.sides] == [measured.seconds(side, PLANNED) for side in (cpu, gpu)]
    (line,) = words.training_sentences(rows)
    assert "27 s on the GPU, 79.1 s on the CPU, 3.0x faster" in line
    loud = [replace(rows[0], flags=("other-load",)), rows[1]]
    (line,) = words.training_sentences(loud)
    assert "27 s on the GPU, 79.1 s on the CPU, probably 3.0x faster" in line
    assert explanation.explain(Request(PLANNED), sources(*loud)).winner == "neither"


def test_a_training_takes_its_row_by_its_settings():
    rows = break_even.trained(quick_suite())
    settings = rows[0].row.settings
    assert measured.measured_training(rows, PLANNED, settings).device == "cpu"
    assert measured.measured_training(rows, PLANNED, replace(settings, device="gpu:0")).device == "gpu:0"
    compiled = replace(settings, switches={**settings.switches, "jit_compile": "on"})
    assert measured.measured_training(rows, PLANNED, compiled) is None
    assert measured.measured_training(rows, replace(PLANNED, batch=64), settings) is None


@functools.cache
def stored() -> profile.Profile:
    return profile.read(str(H200))


def test_no_stored_training_has_two_results():
    """The summary's sentences, the page's table and every explanation of the same training."""
    own = stored()
    both = Sources(cpu=own, gpu=own)
    rows = break_even.trained(own.measurements)
    table = {line[0]: line[3:5] for line in words.table(own.measurements)}
    told = 0
    for pair in break_even.main_pairs(own.measurements):
        sides = measured.both_sides(pair, rows)
        if sides is None or not pair.setup.kernel.endswith("/fit"):
            continue
        training = break_even.planned_training(pair.setup)
        seconds = [measured.seconds(side, training) for side in sides]
        explained = explanation.explain(Request(training), both)
        assert [side.whole for side in explained.sides] == seconds, training
        told += 1
        name = f"{words.subject(pair.setup)}, {words.whole_training_of(pair.setup).words}"
        if name in table:  # measured with all of the model's samples
            assert table.pop(name) == tuple(map(timed, seconds)), name
    assert told >= 10 and not table
