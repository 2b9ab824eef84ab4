"""Trainings on the page: articles' claims, options, the CPU's forms."""

from fake_measurements import page_of
from fake_trainings import both, trained

from analysis.blocks import markdown
from analysis.explain.published import ClaimRow
from analysis.report.sections import training as section
from analysis.report.sections import training as trainings
from analysis.stats import exact
from workloads.records import published_cases


def test_an_articles_claim_joins_the_faster_device(monkeypatch):
    """5 s on the CPU and 2 s on the GPU, the other way round, equal, and a claim without rows."""
    case = published_cases.CASES[0]
    claim = case.claims[0]
    seconds = [(exact(5.0), exact(2.0)), (exact(2.0), exact(5.0)), (exact(2.0), exact(2.0)), (None, None)]
    rows = [ClaimRow(case, claim, cpu=cpu, gpu=gpu) for cpu, gpu in seconds]
    monkeypatch.setattr(trainings, "comparisons", lambda measurements: rows)
    cells = [line.split(" | ") for line in markdown(trainings._articles([])) if line.startswith(f"| {case.name}: ")]
    assert [(line[3], line[5].removesuffix(" |")) for line in cells] == [
        ("2.5x", "gpu"),
        ("0.40x", "cpu"),
        ("1.0x", "neither"),
        ("not measured", "-"),
    ]


def test_options_are_compared_with_keras_plain_step(monkeypatch):
    """A step of 2 ms where Keras's own takes 6 ms, and one of 6 ms where it takes 2 ms."""
    pairs = [("jit on", exact(2e-3), exact(6e-3)), ("2 threads", exact(6e-3), exact(2e-3))]
    changed = []
    for what, step, plain in pairs:
        change = trainings.training.StepChange(
            training="LeNet", device="cpu", options=what, step=step, plain_step=plain
        )
        changed.append(change)
    monkeypatch.setattr(trainings.training, "changes", lambda rows: changed)
    table = markdown(trainings._changes([]))
    assert [line.split(" | ")[3:] for line in table if line.startswith("| LeNet")] == [
        ["2.00 ms", "6.00 ms", "3.0x faster |"],
        ["6.00 ms", "2.00 ms", "3.0x slower |"],
    ]


def test_the_best_cpu_form_stands_others_are_traps():
    every = [
        *both("cifar10-cnn", 32, 320, 4e-3, 1e-3),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 3e-3), jit_compile="on"),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 9e-3), gpu="visible"),
    ]
    page = "\n".join(markdown(section.section(page_of(every))))
    assert "| 4.00 ms (1.3x slower) | 3.00 ms (the best) | 9.00 ms (3.0x slower) | 1.00 ms |" in page
    # 4.04, 4.13 and 4.17 ms are one number where they are known to some 50 %: no factor in the table
    forms = (4.13e-3, {}), (4.17e-3, {"jit_compile": "on"}), (4.04e-3, {"gpu": "visible"}), (1e-3, {"device": "gpu:0"})
    every = [trained("fashion-mlp", 32, 2048, (0.0, 0.0, s), noise=0.1, **given) for s, given in forms]
    page = "\n".join(markdown(section.section(page_of(every))))
    assert "| 4.13 ms (can't tell) | 4.17 ms (can't tell) | 4.04 ms (the best) | 1.00 ms |" in page
