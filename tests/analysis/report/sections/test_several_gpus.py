"""Several GPUs on the page."""

import math

import msgspec
from fake_data_parallel import USUAL, cells, fed, fit, two
from fake_measurements import page_of

from analysis.blocks import markdown
from analysis.report.sections import several_gpus as page
from analysis.report.sections import training as trainings_page
from analysis.stats import Estimate
from analysis.text import several_gpus as words
from workloads.records import settings as switches


def test_table_page_and_sentence_show_the_gains():
    seen = cells(USUAL)
    assert (seen["training"], seen["Keras on"], seen["a GPU"]) == ("CIFAR-10 CNN", "JAX, jit on", "32")
    assert (seen["speedup"], seen["predicted"], seen["off"]) == ("2.0x [2.0, 2.0]", "1.90", "-4.8 %")
    assert (seen["all-reduce"], seen["bus bandwidth"]) == ("300 µs", "22.2 GB/s")
    assert seen["samples a second at the same batch a GPU"] == "2.20x" and "peak memory, each" not in seen
    assert words.training_lines(USUAL) == words.training_lines([fit(4e-3), fit(4e-3, 32)]) == []
    four = fit(2e-3, 64, 4, "DataParallel", values={"jit_compile": 1.0})
    less = fit(5e-3, 32, 4, "DataParallel", values={"jit_compile": 1.0})
    # one training on two GPUs has no most and least
    (said,) = words.training_lines([two(), fit(4e-3), fit(4e-3, 32), less, four])
    assert said == (
        "4 GPUs instead of one (Keras on JAX, jit on), 2 trainings: CIFAR-10 CNN at batch 32 becomes 1.2x slower, "
        "CIFAR-10 CNN at batch 64 2.0x faster."
    )
    assert words.between(Estimate(2.0, 1.0, math.inf)) == "at least 1.0x"
    lines = markdown(page.training_section([*USUAL[:4], fed(3e-3)]))
    assert "| 4.00 ms | 2.00 ms | 2.0x [2.0, 2.0] | 2.0x [2.0, 2.0] | 1.33 | -33.3 % |" in "".join(lines)
    assert lines == markdown(trainings_page.section(page_of([*USUAL[:4], fed(3e-3)])))[-len(lines) :]
    parts = [msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, device="cpu")) for m in USUAL]
    assert page.training_section(parts) == [] and page.training_section([fit(4e-3)]) == []
    assert [switches.ordinary(m) for m in USUAL] == [False, True, True, False, False]


def held(state, temporary):
    return {"step_state_bytes": float(state << 20), "step_temporary_bytes": float(temporary << 20), "jit_compile": 1.0}


def test_memory_halves_for_activations_alone():
    rows = [fit(4e-3, values=held(100, 64)), two(values=held(99, 32))]
    seen = cells(rows)
    memory = [seen[f"{what}, {of}"] for what in ("weights and optimizer", "activations") for of in ("one GPU", "each")]
    assert memory == ["100 MiB", "99.0 MiB", "64.0 MiB", "32.0 MiB"]
    peaks = [fit(4e-3, values={"peak_memory_bytes": 3 * 2**30}), two(values={"peak_memory_bytes": 2 * 2**30})]
    assert (cells(peaks)["peak memory, one GPU"], cells(peaks)["peak memory, each"]) == ("3.00 GiB", "2.00 GiB")
