"""Articles beside ours, and what each complaint's answer must hold: on made-up rows whose numbers are worked out by hand, and on
the stored GPU machine's."""

import ast
import pathlib
from math import inf

import plain_words
import pytest
from fake_contention import four, rounds
from fake_measurements import row
from msgspec.structs import replace

from analysis.explain import __main__, case_verdict, evidence, profiles, published
from analysis.explain.evidence import Comparison, CopyShare, Gain
from analysis.explain.plan import ExplainPlan
from analysis.explain.sources import Sources
from analysis.finding import Finding
from analysis.predict import profile
from analysis.stats import Estimate, exact
from analysis.text import cases
from analysis.text.case_words import CASE_WORDS
from kernels.problems import Launch, Stream, Transfer
from workloads import options, terminal
from workloads.records import published_cases
from workloads.records.published_cases import EVERY

ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module")
def stored():
    here = profile.read(str(ROOT / "reports/nvidia-h200"))
    return Sources(cpu=here, gpu=here)


def replied(name, of) -> cases.Reply:
    plan = ExplainPlan.from_flags(__main__.parser().parse_args(["--case", name]))
    return cases.reply(plan.subject.case, of, plan.subject.request(plan.options))


def here(reply: cases.Reply) -> dict[str, str]:
    return {what: value for what, _, value in reply.rows}


@pytest.mark.slow
def test_the_stored_machine_answers_every_case_in_docs(stored, monkeypatch, capsys):
    replies, reply = [], cases.reply
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(profiles.RowNames, "sources", lambda rows: stored)
    monkeypatch.setattr(cases, "reply", lambda *given: replies.append(reply(*given)) or replies[-1])
    assert __main__.main(["--case", "all", "--format", "md", "reports/nvidia-h200"]) == 0
    assert capsys.readouterr().out == (ROOT / "docs/cases.md").read_text(), "write docs/cases.md anew, as its head says"
    assert [made.name for made in replies] == [*published_cases.EVERY]
    for made in replies:
        assert not made.command and made.rows, made.name
        again = f"{options.python()} -m analysis.explain --case {made.name} reports/nvidia-h200"
        lines = [part for line in cases.lines(made, training_command=again) for part in terminal.wrapped(line, 80)]
        assert len(lines) <= 19, made.name
        assert all(len(line) <= 80 or made.url in line for line in lines), made.name
        assert not [fault for text in (made.answer, *made.more) for fault in plain_words.faults(text)]


def test_three_kinds_of_question_name_what_measures_them():
    kinds = {case.kind for case in published_cases.EVERY.values()}
    assert kinds == set(evidence.KINDS) == set(CASE_WORDS) == {"faster", "gain", "copy"}
    alone = bare()
    for name in ("S0", "mxnet-2898", "so-42097115", "tensorflow-44836", "cupy-2902", "S3b", "S3d"):
        assert replied(name, alone).command == f"python -m {EVERY[name].measured_by}", name


def test_a_student_beside_a_teacher_answers_s3d():
    """10 ms become 12 of the student's step, 3 ms become 3 of the teacher's; 13 ms one after the other are 12 at once."""
    reply = replied("S3d", bare(*four(rounds, (0.010,) * 3, (0.003,) * 3, (0.012,) * 3, (0.003,) * 3)))
    assert [value.partition(" [")[0] for value in here(reply).values()] == [
        "1.1x",
        "0.83x",
        "1.0x",
        "13.0 ms",
        "12.0 ms",
    ]
    assert reply.answer == "Both at once, not one after the other: 1.1x faster. Published: saves time."


def copies(pageable=10e9, pinned=50e9):
    laws = (
        ("transfer/tensorflow/dataset", "pageable", "h2d", pageable),
        ("transfer/cupy/memcpy_async", "pinned", "h2d", pinned),
        ("transfer/cupy/array", "pageable", "d2h", pageable),
    )
    return [
        row(kernel, Transfer(direction, 4**i, memory), 1e-5 + 4**i / rate, device="gpu:0")
        for kernel, memory, direction, rate in laws
        for i in range(1, 16)
    ]


def bare(*rows):
    made = profile.Profile(rows)
    return Sources(cpu=made, gpu=made)


def test_copies_explain_transfer_bound_steps_and_clocks():
    # 136 ms at 10 GB/s are 1.36 GB; at 50 GB/s 27.2 ms; the rest of their step is 69 ms
    made = replied("tensorflow-44836", bare(*copies()))
    assert made.answer == "Copy from pinned memory: 28 % of the time. Published: 136 ms of 205 ms."
    assert here(made)["a step, copy and work at once"] == "69.0 ms"
    p = Stream("scale", 480_000_000, "float32")
    passes = row("stream/cupy/elementwise", p, {"device": 48e-3, "host-latency": 48e-3})  # 10 GB/s: slow passes
    clocks = {n: {"host-latency": 1e-5 * n, "host-issue": 5e-6 * n} for n in (1, 8, 64)}
    launches = [row("launch/cupy/ufunc", Launch("elementwise", n), taken) for n, taken in clocks.items()]
    # 100 calls of 5 µs; 100 passes of 48 ms; 240 MB at 10 GB/s are 24 ms
    clock = evidence.passes_before_copy(60_000_000, 100, (passes, *launches, *copies()))
    assert (clock.issue_s, clock.run_s) == pytest.approx((5e-4, 4.8), rel=0.01)
    assert (clock.copy_s, clock.waited_s) == pytest.approx((24e-3, 4.8235), rel=0.01)
    made = replied("cupy-2902", bare(passes, *launches, *copies()))
    assert (here(made)["copy to the host"], made.verdict) == ("24.0 ms of 4.82 s", "does not hold")


def test_what_was_measured_imports_no_prediction():
    """Whoever judges predictions may not be made of them."""
    seen, left = set(), ["analysis.explain.published"]
    while left:
        name = left.pop()
        path = ROOT / (name.replace(".", "/") + ".py")
        if name in seen or not name.startswith("analysis") or not path.exists():
            continue
        seen.add(name)
        for node in ast.parse(path.read_text()).body:  # not what a function imports when it is called
            if isinstance(node, ast.ImportFrom) and node.module:
                left += [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
    assert "analysis.training.break_even" in seen and not [name for name in seen if name.startswith("analysis.predict")]


# ---------------------------------------------------------------- the articles' claims


# ---------------------------------------------------------------- the verdict on a claim


def compared(reported: str, cpu: Estimate, gpu: Estimate) -> Comparison:
    return Comparison(label="a step", reported=reported, cpu=cpu, gpu=gpu)


SLOW, QUICK, WIDE = Estimate(4.0, 3.9, 4.1), Estimate(2.0, 1.9, 2.1), Estimate(3.0, 1.0, 5.0)


def verdict_on(*claims) -> str:
    return case_verdict.verdict(Finding(kind="", numbers={"claims": claims}))


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ([("gpu", SLOW, QUICK)], "holds"),
        ([("gpu", QUICK, SLOW)], "does not hold"),
        ([("gpu", WIDE, SLOW)], "can't tell"),
        ([("gpu", WIDE, SLOW), ("gpu", QUICK, SLOW)], "does not hold"),
        ([("gpu", SLOW, QUICK), ("cpu", SLOW, QUICK)], "partly"),
        ([("gpu", SLOW, QUICK), ("cpu", WIDE, SLOW)], "partly"),
        ([("neither", WIDE, SLOW)], "holds"),
        ([("neither", QUICK, SLOW)], "holds"),  # the GPU gains nothing
        ([("neither", SLOW, QUICK)], "does not hold"),
    ],
)
def test_a_claim_holds_where_its_device_is_faster(claims, verdict):
    assert verdict_on(*(compared(*one) for one in claims), compared("", SLOW, QUICK)) == verdict


def test_copies_decide_only_from_pinned_memory():
    pageable = CopyShare(label="pageable", words="", copy_s=0.136, whole_s=0.205, claimed_share=0.5)
    pinned = replace(pageable, copy_s=0.027, whole_s=0.096)
    assert verdict_on(pageable, pinned) == "partly"
    assert verdict_on(pageable, replace(pinned, copy_s=0.080, whole_s=0.149)) == "holds"
    assert verdict_on(replace(pinned, copy_s=0.012, whole_s=0.023, claimed_share=0.9)) == "does not hold"


@pytest.mark.parametrize(
    ("low", "high", "gains", "verdict"),
    [
        (28, 56, [Estimate(3.4, 3, 4)], "does not hold"),
        (28, 56, [Estimate(26, 20, 30)], "holds"),
        (28, 56, [Estimate(70, 60, 80)], "does not hold"),
        (1, inf, [Estimate(1.2, 1.1, 1.4)], "holds"),  # any gain
        (1, inf, [Estimate(1.2, 0.9, 1.4)], "can't tell"),
        (1, inf, [Estimate(0.8, 0.7, 0.9)], "does not hold"),
        (0, 1, [Estimate(1.2, 0.9, 1.4)], "holds"),  # no gain
        (0, 1, [QUICK / SLOW, SLOW / QUICK], "partly"),
    ],
)
def test_a_claimed_gain_holds_within_its_range(low, high, gains, verdict):
    claims = [Gain(label="", claimed_low=low, claimed_high=high, gain=gain) for gain in gains]
    assert verdict_on(*claims, Gain(label="", gain=SLOW)) == verdict


def test_the_table_counts_and_links_each_verdict():
    one = cases.Reply(
        name="S0",
        title="t",
        answer="a",
        machine="here",
        verdict="holds",
        claim="the GPU is faster",
        why="GPU 2.0x faster",
    )
    other = replace(
        one, name="keras-249", verdict="does not hold", url="https://github.com/keras-team/keras/issues/249"
    )
    lines = cases.overview([one, other], markdown=True)
    assert lines[0] == "Of 2 claims in articles and bug reports, 1 hold on here and 0 hold partly. 1 do not."
    assert "| S0 | the GPU is faster | holds | GPU 2.0x faster |" in lines
    assert lines[-1].startswith(f"| [keras-249]({other.url}) | the GPU is faster | does not hold |")
    assert "Source: https://github.com/keras-team/keras/issues/249" in cases.lines(other)
    assert not any("Source" in line for line in cases.lines(one))


@pytest.mark.parametrize(
    ("cpu", "gpu", "here", "faster"),
    [
        (exact(3.0), exact(1.0), 3.0, "gpu"),
        (exact(1.0), exact(2.0), 0.5, "cpu"),
        (Estimate(2.0, 1.0, 4.0), exact(2.0), 1.0, "neither"),
        (None, exact(2.0), None, ""),
        (exact(2.0), None, None, ""),
    ],
)
def test_a_claim_needs_both_sides_seconds(cpu, gpu, here, faster):
    beside = published.ClaimRow(None, None, None, cpu, gpu)
    assert (beside.here and beside.here.value, beside.faster) == (here, faster)
