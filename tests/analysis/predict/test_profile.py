"""Reading a profile: what a call costs is taken off, what stands for what."""

import made_profile
import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row
from fake_trainings import trained
from made_profile import BYTES, CALL, IMPORT, LATENCY, LINK, OPERATION, RATE, STEP
from msgspec.structs import replace

from analysis.predict import (
    best_rates,
    components,
    host_parts,
    network_kernels,
    one_time_costs,
    passes,
    products,
    profile,
)
from analysis.predict.profile import COMPILED, OP_BY_OP
from kernels import networks
from kernels.problems import Conv, Matmul, Stream, Training
from workloads.options import Usage
from workloads.records import Settings

P = Matmul(32, 100, 784)
MLP = Training("mlp-784-100x2-10", 32, 2048)


def test_a_product_is_read_without_its_call(whole):
    read = products.product(whole, P, "cpu", OP_BY_OP)
    assert read.seconds.value == pytest.approx(P.flops / RATE["cpu"] + OPERATION, rel=1e-6)
    assert read.source == "TensorFlow's rows in a tf.function"
    assert products.product(whole, P, "cpu", COMPILED).source == "TensorFlow's rows compiled by XLA"
    tf32 = msgspec.structs.replace(P, math="tf32")
    read = products.product(whole, tf32, "gpu:0", COMPILED)
    assert read.seconds.value == pytest.approx(tf32.flops / RATE["gpu:0"], rel=1e-6)
    assert (read.source, read.instead) == ("libraries' rows", "")
    read = products.product(whole, msgspec.structs.replace(P, dtype="bfloat16", math="bfloat16"), "gpu:0", COMPILED)
    assert read.instead == "bfloat16 priced as tf32, of which there are rows"
    on_cpu = products.product(whole, msgspec.structs.replace(P, dtype="bfloat16", math="bfloat16"), "cpu", OP_BY_OP)
    assert on_cpu.instead == "bfloat16 priced as float32, of which there are rows"
    rows = [*made_profile.launches(), row("matmul/tensorflow/function", P, CALL * 0.9)]
    assert products.product(profile.Profile(rows), P, "cpu", OP_BY_OP) is None


def test_a_pass_grows_with_its_bytes(whole):
    for p in (Stream("relu", 8 * elements, "float32") for elements in (5_000, 1_000_000)):
        read = passes.pass_seconds(whole, p, "cpu", OP_BY_OP).seconds.value
        assert read == pytest.approx(p.bytes_moved / BYTES["cpu"], rel=0.02)
    other = passes.pass_seconds(whole, Stream("triad", 12_000_000, "float32"), "cpu", OP_BY_OP)
    assert other.seconds.value == pytest.approx(12e6 / BYTES["cpu"], rel=0.02)  # by an addition's curve, as it has none
    # adam fused moves 7 arrays; step by step 8 for the first moment, 10 for the second, 12 for the weights
    rows = [row("stream/numba/loop", Stream("scale", n, "float32"), n / 1e10) for n in made_profile.SIZES]
    whole = profile.Profile(rows)
    adam = Stream("adam", 28 * 2**16, "float32")
    read = passes.pass_seconds(whole, adam, "cpu", OP_BY_OP)
    assert read.seconds.value == pytest.approx(30 / 7 * adam.bytes_moved / 1e10, rel=0.02)
    assert "python -m workloads.stream" in read.instead
    fused = passes.pass_seconds(whole, adam, "cpu", COMPILED)
    assert fused.seconds.value == pytest.approx(adam.bytes_moved / 1e10, rel=0.02)


def test_graph_rows_give_the_cost_of_calls():
    """A product in a graph as it was measured. One in a call less what the call nearest to it in length took more than inside a
    graph."""
    inside, calls = 60e-6, {8: 150e-6, 16: 160e-6, 32: 250e-6}
    pairs = [
        row(f"matmul/tensorflow/{v}", Matmul(m, 100, 784), s)
        for m, call in calls.items()
        for v, s in (("graph", inside), ("function", inside + call))
    ]
    alone = row("matmul/tensorflow/function", Matmul(64, 100, 784), 1e-3)
    whole = profile.Profile([*made_profile.launches(), *pairs, alone])
    read = {m: products.product(whole, Matmul(m, 100, 784), "cpu", OP_BY_OP).seconds.value for m in (8, 16, 32, 64)}
    assert [read[m] for m in calls] == [inside] * 3
    assert read[64] == pytest.approx(1e-3 - 250e-6)  # the nearest of the three
    conv = Conv(8, 16, 16, 32, 64, 3, 3, pad="same")
    inside, around = 80e-6, 420e-6
    rows = [row("conv/tensorflow/held", conv, inside), row("conv/tensorflow/function", conv, inside + around)]
    wgrad = msgspec.structs.replace(conv, direction="wgrad")
    whole = profile.Profile([*made_profile.launches(), *rows, row("conv/tensorflow/function", wgrad, around + 2e-4)])
    assert products.product(whole, conv, "cpu", OP_BY_OP).seconds.value == inside
    assert products.product(whole, wgrad, "cpu", OP_BY_OP).seconds.value == pytest.approx(2e-4)
    alone = profile.Profile([*made_profile.launches(), rows[1]])
    seconds = products.product(alone, conv, "cpu", OP_BY_OP).seconds.value
    assert seconds == pytest.approx(inside + around - CALL, rel=1e-3)


def test_small_passes_come_from_graphs_large_from_calls():
    """Passes in a graph are bytes at 1e10 a second and two dispatches; a call takes 400 µs more at 8 MiB, so what is larger is
    read less that. An update in a graph is one of several that share the cores; by itself, as it counts, it takes three times as
    long here."""
    rate, woken = 1e10, 400e-6
    rows = [
        row("stream/tensorflow/graph", Stream(op, n, "float32"), n / rate + k * OPERATION)
        for op, k in (("relu", 2), ("sgd", 2), ("adam", 16))
        for n in (2**16, 2**20, 2**23)
    ]
    calls = [
        row("stream/tensorflow/function", Stream(op, n, "float32"), times * n / rate + woken)
        for op, times in (("relu", 1), ("adam", 3))
        for n in (2**16, 2**20, 2**23, 2**26)
    ]
    whole = profile.Profile([*made_profile.launches(), *rows, *calls])

    def relu(n):
        return passes.pass_seconds(whole, Stream("relu", n, "float32"), "cpu", OP_BY_OP).seconds.value

    assert relu(2**20) == pytest.approx(2**20 / rate, rel=0.1) and relu(2**26) == pytest.approx(2**26 / rate, rel=0.02)
    adam = Stream("adam", 28 * 2**15, "float32")
    own = passes.pass_seconds(whole, adam, "cpu", OP_BY_OP).seconds.value
    assert own == pytest.approx(3 * adam.bytes_moved / rate, rel=0.2)


def test_gradients_of_normalizations_are_read_off_those():
    """24 passes over arrays where a normalization has 14, of as many bytes an array."""
    rows = [
        row("stream/tensorflow/function", Stream(op, n, "float32"), CALL + n / rate)
        for op, rate in (("batchnorm", 1e9), ("add", 1e10))
        for n in made_profile.SIZES
    ]
    whole = profile.Profile([*made_profile.launches(), *rows])
    grad = Stream("batchnorm_grad", 3 * 2**22, "float32")
    read = passes.pass_seconds(whole, grad, "cpu", OP_BY_OP).seconds.value
    assert read == pytest.approx(24 / 14 * 2 / 3 * grad.bytes_moved / 1e9, rel=0.1)


def test_steps_operations_issuing_and_copies_by_their_laws(whole):
    for (device, jit), step in STEP.items():
        assert whole.step_floor(device, jit).value == pytest.approx(step)
    assert profile.Profile([]).step_floor("cpu", "on") is None
    assert passes.operation_overhead(whole, "cpu").value == pytest.approx(OPERATION, rel=0.05)
    bare = profile.Profile(made_profile.launches())
    assert passes.operation_overhead(bare, "cpu").value == pytest.approx(OPERATION)  # of the chain of launch rows
    assert passes.operation_overhead(profile.Profile([]), "cpu") is None
    assert whole.issuing("matmul", "gpu:0") is None
    rows = [
        row("matmul/cupy/cublas", Matmul(n, n, n), {"device": own, "host-throughput": queued})
        for n, own, queued in ((32, 2e-6, 8e-6), (64, 3e-6, 9e-6), (128, 4e-6, 10e-6), (4096, 3e-3, 3e-3))
    ]
    assert profile.Profile(rows).issuing("matmul", "gpu:0") == pytest.approx(9e-6)
    assert whole.copying(10**6, "gpu:0").value == pytest.approx(LATENCY + 10**6 / LINK, rel=0.01)
    assert profile.Profile([]).copying(10**6, "gpu:0") is None


def test_the_memorys_bandwidth_counts_beyond_the_last_cache(whole):
    cache = GPU_MACHINE.caches_bytes["L3"]
    assert best_rates.bandwidth_beyond_caches(whole, "cpu", cache) is None
    big = Stream("triad", 2 * cache, "float32")
    rows = [row("stream/numba/loop", big, big.bytes_moved / 3e9)]
    assert best_rates.bandwidth_beyond_caches(profile.Profile(rows, GPU_MACHINE), "cpu", cache + 1) == pytest.approx(
        3e9
    )
    assert best_rates.bandwidth_beyond_caches(profile.Profile(rows), "cpu", cache + 1) is None
    far = Stream("triad", 4 * cache, "float32")  # of twice the cache a half is still in it
    rows.append(row("stream/numba/loop", far, far.bytes_moved / 1e9))
    assert best_rates.bandwidth_beyond_caches(profile.Profile(rows, GPU_MACHINE), "cpu", cache + 1) == pytest.approx(
        1e9
    )


def test_rows_of_two_machines_are_no_profile(tmp_path):
    for machine in (CPU_MACHINE, GPU_MACHINE):
        made_profile.written(tmp_path, made_profile.launches(), machine)
    with pytest.raises(Usage, match="rows are of 2 machines"):
        profile.read(tmp_path)
    assert profile.read(tmp_path / CPU_MACHINE.key).key == CPU_MACHINE.key


def test_casting_a_data_set_costs_a_pass(whole):
    """32,768 samples of 784 numbers; without rows of sets they are read and written once."""
    held = [row("stream/tensorflow/dataset", Stream("copy", 2 * k, "float32"), k / 2e9) for k in made_profile.SIZES]
    of, n = profile.Profile([*whole.measurements, *held]), 32_768 * 784 * 4

    def taken(of, dtype):
        problem = Training("mlp-784-100x2-10", 32, 32_768, 1, dtype)
        return one_time_costs.data_set_setup(of, networks.find(problem.model), problem, "cpu").value

    assert taken(of, "float32") == pytest.approx(n / 2e9, rel=0.01)
    assert taken(of, "float64") == pytest.approx(n / 2e9 + 3 * n / BYTES["cpu"], rel=0.02)
    assert taken(whole, "float32") == pytest.approx(2 * n / BYTES["cpu"], rel=0.02)


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_a_step_has_at_most_the_data_set(whole, device):
    """A batch of 4,096 out of 128 samples is a step of 128."""
    network, side = networks.find(MLP.model), Settings(device)
    large, fitting = (Training(MLP.model, batch, 128) for batch in (4096, 128))
    one, other = (components.components(job, side, whole, network) for job in (large, fitting))
    assert replace(one, training=fitting) == other
    smaller = components.components(Training(MLP.model, 32, 128), side, whole, network)
    assert smaller.parts["element-wise"].value < other.parts["element-wise"].value / 2


def test_slowly_issued_products_cost_their_excess_over_launches(whole):
    """mlp-784-100x2-10 has eight products (three forward, three dW, two dX), the small model two: six times 9 - 3 µs."""
    rows = [row("matmul/cupy/cublas", Matmul(n, n, n), {"device": 2e-6, "host-throughput": 9e-6}) for n in (8, 16, 24)]
    kernels = network_kernels.table_kernels(networks.step(networks.find("mlp-784-100x2-10"), 32), COMPILED, "gpu:0")
    slow = profile.Profile([*whole.measurements, *rows])
    before = host_parts.issued_beyond_small_step(kernels, whole, "gpu:0", COMPILED)
    after = host_parts.issued_beyond_small_step(kernels, slow, "gpu:0", COMPILED)
    assert before.count == after.count
    assert after.seconds.value - before.seconds.value == pytest.approx(6 * 6e-6)


def test_a_start_comes_from_its_device_or_launches(whole):
    """5 s on the CPU and 9 s on the GPU, as trainings there started; without trainings the import alone is known."""
    cpu, gpu = (
        trained("lenet", 32, 2048, (0.0, 0.0, 1e-3), device=device, once=(start, 0.0, 0.0))
        for device, start in (("cpu", 5.0), ("gpu:0", 9.0))
    )
    of = profile.Profile([*whole.measurements, gpu, cpu])
    assert [one_time_costs.start(of, device).value for device in ("cpu", "gpu:0")] == pytest.approx([5.0, 9.0])
    assert one_time_costs.start(whole, "cpu").value == pytest.approx(IMPORT)
