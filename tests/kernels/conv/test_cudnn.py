"""cuDNN's plans without a GPU: which are timed, by which clock, and which is kept."""

import drawn
import fake_cudnn
import fake_cupy
import numpy as np
import pytest
from fake_cudnn import Engine, Note
from msgspec.structs import replace

from kernels import registry
from kernels.problems import Conv
from tests.bench import cudnn_best
from workloads.harness import copy_modes

PROBLEM = Conv(2, 8, 8, 4, 6, 3, 3, pad="same")
SLOW = 9e-6


@pytest.fixture
def gpu(monkeypatch):
    with fake_cupy.installed(monkeypatch) as gpu:
        yield gpu


@pytest.fixture
def installed(monkeypatch, gpu, tmp_path):
    """Engines -> (the module, the library), as a process that just began."""
    return lambda engines: fake_cudnn.installed(monkeypatch, gpu, engines, tmp_path)


def bound(module, problem=PROBLEM, **options):
    import cupy

    arrays = [cupy.empty(shape, np.float32) for shape in problem.operand_shapes]
    return module.plan(problem, *arrays, **options)


def test_the_fastest_plan_is_chosen_though_listed_last(installed):
    engines = [Engine(number=number, seconds=SLOW) for number in range(7)]
    module, library = installed([*engines, Engine(number=70, seconds=5e-6)])
    run = bound(module)
    assert run.notes == {"plan": "eng70", "plans": "8"}
    library.called.clear()
    assert run().shape == PROBLEM.out_shape
    assert library.called == [70]


def test_plans_shorter_than_the_host_use_device_clocks(installed):
    """The host takes 40 us to start any of them."""
    module, _ = installed(
        [Engine(number=1, seconds=7e-6), Engine(number=2, seconds=5e-6), Engine(number=3, seconds=6e-6)]
    )
    search = module.timed_plans(PROBLEM, [1, 2, 3], module.cupy.cuda.get_current_stream())
    assert [plan.index for plan in search.plans] == [1, 2, 0]
    assert [plan.seconds for plan in search.plans] == pytest.approx([5e-6, 6e-6, 7e-6])


def test_a_disturbed_plan_is_timed_again(installed, monkeypatch):
    module, _ = installed([Engine(number=1, seconds=5e-6), Engine(number=2, seconds=6e-6)])
    device_seconds, factors = module.autotuner.device_seconds, [1.9]
    monkeypatch.setattr(
        module.autotuner, "device_seconds", lambda run: device_seconds(run) * (factors.pop() if factors else 1)
    )
    search = module.timed_plans(PROBLEM, [1, 2, 3], module.cupy.cuda.get_current_stream())
    assert [plan.index for plan in search.plans] == [0, 1] and search.plans[0].seconds == pytest.approx(5e-6)


def test_a_call_compares_no_plan_with_excluded_kinds(installed):
    module, library = installed([Engine(number=number, seconds=SLOW) for number in range(9)])
    run = bound(module)
    run()
    assert library.graphs[-1].excluded == []


def test_winograd_and_fft_count_unless_direct_is_set(installed):
    engines = [
        Engine(number=1, seconds=SLOW),
        Engine(number=2, seconds=4e-6, notes=(Note.WINOGRAD,)),
        Engine(number=3, seconds=5e-6, notes=(Note.FFT,)),
        Engine(number=4, seconds=8e-6),
    ]
    module, _ = installed(engines)
    fastest, direct = bound(module), bound(module, direct=True)
    assert fastest.notes == {"plan": "eng2", "plans": "4", "form": "Winograd or FFT"} and fastest.bound > 0
    assert direct.notes == {"plan": "eng4", "plans": "4"} and not hasattr(direct, "bound")
    module, _ = installed(engines[1:3])
    with pytest.raises(ValueError, match="only Winograd and FFT"):
        bound(module, replace(PROBLEM, n=3), direct=True)


def test_float32_leaves_tensor_cores_out(installed):
    engines = [Engine(number=1, seconds=SLOW), Engine(number=2, seconds=1e-6, notes=(Note.TENSOR_CORE,))]
    module, _ = installed(engines)
    assert bound(module).notes["plan"] == "eng1"
    assert bound(module, replace(PROBLEM, math="tf32")).notes["plan"] == "eng2"


def test_a_plan_with_wrong_sums_is_skipped(installed):
    engines = [
        Engine(number=1, seconds=SLOW),
        Engine(number=2, seconds=1e-6, wrong=True),
        Engine(number=3, seconds=2e-6),
        Engine(number=4, seconds=1.5e-6, wrong=True),
    ]
    module, _ = installed(engines)
    assert bound(module).notes == {"plan": "eng3", "plans": "4", "plans_inexact": "2"}
    module, _ = installed([engines[1], engines[3]])
    with pytest.raises(ValueError, match="no plan with exact sums"):
        bound(module, replace(PROBLEM, n=3))


def test_sums_are_judged_on_whole_numbers_alone(installed):
    module, _ = installed([Engine(number=1, seconds=SLOW), Engine(number=2, seconds=1e-6, wrong=True)])
    import cupy

    arrays = [cupy.asarray(np.full(shape, 0.5, np.float32)) for shape in PROBLEM.operand_shapes]
    assert module.plan(PROBLEM, *arrays).notes == {"plan": "eng2", "plans": "2"}


def test_unbuildable_and_oversized_plans_are_left_out(installed):
    engines = [
        Engine(number=1, seconds=1e-6, broken=True),
        Engine(number=2, seconds=2e-6, workspace=(4 << 30) + 1),
        Engine(number=3, seconds=SLOW, workspace=64),
    ]
    module, _ = installed(engines)
    assert bound(module).notes == {"plan": "eng3", "plans": "1", "plans_listed": "3"}
    module, _ = installed(engines[:2])
    with pytest.raises(ValueError, match="no plan for this"):
        bound(module, replace(PROBLEM, n=3))


def test_a_search_ends_at_its_time_limit(installed, monkeypatch):
    module, _ = installed([Engine(number=1, seconds=SLOW), Engine(number=2, seconds=1e-6)])
    monkeypatch.setattr(module, "SEARCH_S", -1.0)
    assert bound(module).notes == {"plan": "eng1", "plans": "1", "plans_listed": "2"}


def test_a_choice_is_stored_per_shape(installed):
    engines = [Engine(number=1, seconds=SLOW), Engine(number=2, seconds=1e-6)]
    module, library = installed(engines)
    assert bound(module).notes["plan"] == "eng2" and library.called
    module, library = installed(engines)  # the next process
    assert bound(module).notes == {"plan": "eng2", "plans": "2"} and not library.called
    bound(module, replace(PROBLEM, n=3))
    assert library.called, "another shape is timed"
    module, library = installed(engines[::-1])
    assert bound(module).notes["plan"] == "eng2" and library.called


def test_a_rebound_copying_call_builds_nothing(installed):
    module, library = installed([Engine(number=1, seconds=SLOW), Engine(number=2, seconds=1e-6)])
    bound(module)
    before = library.builds
    bound(module)
    assert library.builds == before


def test_a_fastest_direct_plan_is_not_timed_again(installed):
    module, library = installed([Engine(number=1, seconds=SLOW), Engine(number=2, seconds=1e-6)])
    bound(module)
    count = len(library.called)
    assert bound(module, direct=True).notes["plan"] == "eng2" and len(library.called) == count


def test_the_bench_shows_few_plans_and_host_time(installed, gpu, monkeypatch):
    """Nine plans; with one excluded form the host compares 9 plans with 5 kinds in 0.2 us each, on top of its 40 us."""
    engines = [Engine(number=number, seconds=20e-6 - number * 1e-6) for number in range(8)]
    module, _ = installed([*engines, Engine(number=9, seconds=4e-6, notes=(Note.WINOGRAD,))])
    monkeypatch.setattr(drawn, "operands", lambda p: [module.cupy.empty(s, np.float32) for s in p.operand_shapes])
    monkeypatch.setattr(cudnn_best.cache_state, "flush", lambda *_: lambda: gpu.launch(10e-6))
    monkeypatch.setattr(cudnn_best, "where", lambda: dict.fromkeys(("card", "cudnn", "commit", "at"), ""))
    kernel = registry._registered["conv/cudnn/plan"]
    monkeypatch.setattr(registry, "find", lambda name: kernel)
    cause = cudnn_best.cause(kernel, replace(PROBLEM, dtype="bfloat16", math="bfloat16"), copy_modes.gpu_stream())
    assert (cause.all_index, cause.few_index, cause.direct_index, cause.listed, cause.timed) == (8, 4, 7, 9, 9)
    assert [cause.all_s, cause.few_s, cause.direct_s] == pytest.approx([4e-6, 16e-6, 13e-6])
    assert [cause.host_s, cause.excluded_host_s] == pytest.approx([41e-6, 50e-6])
    # the flush ends 11 us after it was issued, the host has started the call after 52, and it takes 13
    assert cause.before_s == pytest.approx(54e-6)


def test_the_bench_has_twenty_layers_in_three_directions():
    problems = cudnn_best.torch_layers(["bfloat16"])
    assert len({replace(p, direction="fprop") for p in problems}) == 20 and len(problems) == 60
    assert all(len({zeros for pair in p.pads for zeros in pair}) == 1 for p in problems)
