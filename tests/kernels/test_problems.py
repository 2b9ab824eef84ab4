"""FLOPs, bytes, shapes and inputs worked out by hand; convolutions by the definition in plain loops; the check of answers
refuses every kind of wrong one."""

import ml_dtypes
import msgspec
import numpy as np
import pytest

from kernels import networks, reference
from kernels.problems import (
    AllReduce,
    AtOnce,
    Conv,
    Inference,
    InputPipeline,
    Launch,
    Matmul,
    Peak,
    PeerCopy,
    Problem,
    Stream,
    Training,
    Transfer,
)
from kernels.problems.arrays import ARITHMETIC, DTYPES, numpy_dtype, precision, random_array
from kernels.stream._passes import library


def test_matmul_counts_layouts_and_batched_products():
    p = Matmul(2, 3, 4)
    assert (p.flops, p.bytes_moved) == (48, 4 * (8 + 12 + 6))
    assert Matmul(2, 3, 4, "bfloat16", out="float32").bytes_moved == 2 * (8 + 12) + 4 * 6
    assert Matmul(1, 1, 1, "float64").bytes_moved == 24
    shapes = {layout: [x.shape for x in Matmul(2, 3, 4, layout=layout).inputs(1)] for layout in ("nn", "nt", "tn")}
    assert shapes == {"nn": [(2, 4), (4, 3)], "nt": [(2, 4), (3, 4)], "tn": [(4, 2), (4, 3)]}
    p = Matmul(2, 3, 4, layout="nt", batch=5)
    assert (p.flops, p.bytes_moved, p.result_bytes) == (5 * 48, 5 * 4 * (8 + 12 + 6), 5 * 4 * 6)
    assert [x.shape for x in p.inputs(1)] == [(5, 2, 4), (5, 3, 4)]
    relu = Matmul(
        2, 3, 4, "bfloat16", epilogue="bias-relu"
    )  # two more for each of 6 results, a bias for each of 3 columns
    assert (relu.flops, relu.bytes_moved, relu.inputs(1)[2].shape) == (48 + 12, 2 * (8 + 12 + 6 + 3), (3,))
    assert Matmul(2, 2, 2, epilogue="bias-relu").side == 0
    assert Matmul(2, 2, 2).side == 2 and Matmul(2, 2, 2, batch=5).side == Matmul(2, 2, 3).side == 0
    one = b'{"type":"matmul","m":2,"n":3,"k":4,"math":"float32","out":"float32"}'
    plain = Matmul(2, 3, 4, batch=1, epilogue="")
    assert (msgspec.json.encode(plain), plain) == (one, Matmul(2, 3, 4))
    assert msgspec.json.encode(p).endswith(b'"layout":"nt","batch":5}')


def test_matmul_refuses():
    words = {"dtype": "int8", "math": "float64", "layout": "tt", "epilogue": "gelu"}
    wrong = [{name: of} for name, of in {"m": 0, "n": -1, "k": 1.5, "batch": 0, **words}.items()]
    for fields in (*wrong, {"batch": 2, "epilogue": "bias-relu"}):
        with pytest.raises(ValueError):
            Matmul(**{"m": 1, "n": 1, "k": 1, **fields})


@pytest.mark.parametrize(
    ("operation", "arrays", "flops"), [("copy", 2, 0), ("scale", 2, 1), ("add", 3, 1), ("triad", 3, 2), ("read", 1, 1)]
)
def test_stream_counts(operation, arrays, flops):
    p = Stream(operation, 2400, "float64")
    assert p.elements == 2400 // (8 * arrays) and p.flops == flops * p.elements and p.bytes_moved == 2400


def test_precisions_bytes_and_tables_are_consistent():
    assert precision("tf32") == ("float32", "tf32") and precision("bfloat16") == ("bfloat16", "bfloat16")
    with pytest.raises(ValueError, match="unknown dtype 'float9'"):
        precision("float9")
    assert Stream("triad", 2401).bytes_moved == 2400
    with pytest.raises(ValueError, match="smallest is 24"):
        Stream("triad", 23)
    with pytest.raises(ValueError, match="unknown dtype 'cold'"):
        Training("cifar10-cnn", 32, 9600, dtype="cold")
    assert Training("cifar10-cnn", 32, 50_000).steps == 1563 and Training("cifar10-cnn", 32, 9600).steps == 300
    assert sorted(m for dtype in DTYPES.values() for m in dtype.maths) == sorted(ARITHMETIC)
    assert all(numpy_dtype(name).itemsize == dtype.nbytes for name, dtype in DTYPES.items())
    every = {(name, m) for name, dtype in DTYPES.items() for m in dtype.maths}
    assert all(set(a.instead) <= every and a.on_cpu in ("", *ARITHMETIC) for a in ARITHMETIC.values())


def test_random_data_is_normal_and_follows_the_seed():
    a, b = (random_array((100_000,), "float32", seed, False) for seed in (1, 1))
    assert np.array_equal(a, b) and not np.array_equal(a, random_array((100_000,), "float32", 2, False))
    assert abs(a.mean()) < 0.02 and abs(a.std() - 1) < 0.02 and (a != 0).all()
    values = random_array((4, 1 << 21), "float32", 1, False)
    assert not np.array_equal(values[0], values[2])
    values = random_array((1000,), "bfloat16", 1, True)
    assert values.dtype == ml_dtypes.bfloat16 and set(values.astype(float)) == {-2.0, -1.0, 1.0, 2.0}


def test_alignment_counts_stored_rows_and_group_channels():
    sizes = {8: 64, 4: 12, 1: 10}
    for expected, size in sizes.items():
        products = Matmul(7, 64, size), Matmul(7, size, 64, layout="nt"), Matmul(size, 64, 7, layout="tn")
        convolutions = Conv(1, 5, 5, size, 64, 3, 3), Conv(1, 5, 5, 64, size, 3, 3)
        assert {p.alignment for p in (*products, *convolutions)} == {expected}
    assert Conv(1, 5, 5, 16, 64, 3, 3, groups=4).alignment == 4  # 4 and 16 channels
    assert Conv(1, 5, 5, 3, 64, 3, 3).alignment == 1  # color images


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(1, 2, 3, "float32", "tf32"),
        Matmul(1, 2, 3, batch=4),
        Conv(1, 8, 8, 3, 4, 3, 3, 2, "same", math="tf32"),
        Conv(1, 8, 8, 3, 4, 3, 3, 2, 3),
        Stream("triad", 240),
        Peak("float64", 10),
        Training("x", 1, 2),
    ],
)
def test_a_line_of_json_knows_its_type(problem):
    assert msgspec.json.decode(msgspec.json.encode(problem), type=Problem) == problem


@pytest.mark.parametrize("direction", Conv.DIRECTIONS)
def test_counts_by_hand(direction):
    """S0's second convolution at batch 32: 16 x 16 x 32 to 64 filters of 3 x 3, same."""
    p = Conv(32, 16, 16, 32, 64, 3, 3, pad="same", direction=direction)
    assert (p.p, p.q, p.pads) == (16, 16, ((1, 1), (1, 1))) and p.flops == 2 * 32 * 256 * 64 * 288 == 301_989_888
    assert p.bytes_moved == p.footprint_bytes == 4 * (262_144 + 18_432 + 524_288) == 3_219_456
    assert p.gemm == {"fprop": (8192, 64, 288), "dgrad": (8192, 288, 64), "wgrad": (288, 64, 8192)}[direction]


def test_shapes_pads_and_groups_by_hand():
    p = Conv(1, 4, 4, 6, 9, 3, 3, groups=3)
    assert p.flops == 2 * 4 * 9 * 2 * 9 and p.w_shape == (3, 3, 2, 9)
    assert msgspec.structs.replace(p, layout="NCHW").w_shape == (9, 2, 3, 3)
    # A 1 x 1 filter every 2: a quarter of 4 x 4 x 8 is read, but dx is written whole
    rest = 8 * 8 + 2 * 2 * 8
    moved = {d: Conv(1, 4, 4, 8, 8, 1, 1, 2, direction=d).bytes_moved for d in Conv.DIRECTIONS}
    assert moved == {"fprop": 4 * (32 + rest), "dgrad": 4 * (128 + rest), "wgrad": 4 * (32 + rest)}
    assert Conv(1, 6, 6, 1, 1, 3, 3, 2).bytes_moved == 4 * (25 + 9 + 4)  # the last row and column are left over
    assert Conv(1, 1, 1, 1, 1, 2, 2, 1, 4).bytes_moved == 4 * (1 + 4 + 64)  # most windows lie in the padding
    for layout, x, w, y in (
        ("NHWC", (2, 5, 7, 4), (3, 1, 2, 6), (2, 3, 7, 6)),
        ("NCHW", (2, 4, 5, 7), (6, 2, 3, 1), (2, 6, 3, 7)),
    ):
        for direction, shapes in (("fprop", [x, w]), ("dgrad", [y, w]), ("wgrad", [x, y])):
            of = Conv(2, 5, 7, 4, 6, 3, 1, groups=2, layout=layout, direction=direction)
            assert [a.shape for a in of.inputs(1)] == shapes


@pytest.mark.parametrize(
    ("size", "taps", "stride", "pad", "pads", "outputs"),
    [
        (32, 3, 1, "same", (1, 1), 32),
        (32, 3, 2, "same", (0, 1), 16),
        (33, 3, 2, "same", (1, 1), 17),
        (32, 2, 1, "same", (0, 1), 32),
        (32, 1, 2, "same", (0, 0), 16),
        (5, 7, 3, "same", (2, 3), 2),
        (32, 3, 2, "valid", (0, 0), 15),
        (299, 3, 2, "valid", (0, 0), 149),
        (224, 7, 2, 3, (3, 3), 112),
        (1, 3, 1, 4, (4, 4), 7),
    ],
)
def test_padding_is_tensorflows(size, taps, stride, pad, pads, outputs):
    p = Conv(1, size, size, 1, 1, taps, taps, stride, pad)
    assert (p.pads[0], p.p) == (pads, outputs)
    wide = Conv(1, 300, size, 1, 1, 1, taps, stride, pad)
    assert (wide.pads[1], wide.q) == (pads, outputs)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"n": 0}, "n must be a whole number of at least 1, not 0"),
        ({"groups": 0}, "groups must be"),
        ({"r": 1.5}, "r must be"),
        ({"r": 6}, "a filter of 6 x 3 is larger than the padded image of 5 x 5"),
        ({"pad": "full"}, "pad must be same, valid or"),
        ({"s": 10, "pad": 2}, "a filter of 3 x 10 is larger than the padded image of 9 x 9"),
        ({"pad": -1}, "pad must be"),
        ({"pad": True}, "pad must be"),
        ({"groups": 3}, "3 groups do not divide c_in = 4"),
        ({"groups": 4}, "4 groups do not divide c_out = 6"),
        ({"layout": "CHWN"}, "unknown layout 'CHWN'; known: NHWC, NCHW"),
        ({"direction": "back"}, "unknown direction 'back'; known: fprop"),
        ({"dtype": "int8"}, "unknown dtype 'int8'"),
        ({"dtype": "float64", "math": "tf32"}, "float64 operands cannot be multiplied in 'tf32'"),
    ],
)
def test_nonsense_is_refused(fields, words):
    with pytest.raises(ValueError, match=words):
        Conv(**{"n": 2, "h": 5, "w": 5, "c_in": 4, "c_out": 6, "r": 3, "s": 3, **fields})


@pytest.mark.parametrize(
    ("operation", "read", "written", "flops"),
    [
        ("relu", 1, 1, 1),
        ("relu_grad", 2, 1, 1),
        ("dropout", 1, 1, 2),
        ("maxpool", 1, 0.25, 0.75),
        ("maxpool_grad", 1.5, 1, 1),
        ("batchnorm", 1, 1, 8),
        ("batchnorm_grad", 2, 1, 13),
        ("sgd", 2, 1, 2),
        ("adam", 4, 3, 12),
    ],
)
def test_passes_of_a_step_by_hand(operation, read, written, flops):
    """20,480 elements are ten images of 8 x 8 x 32. Adam reads a weight, its gradient and two moments, and writes three."""
    elements = 10 * 8 * 8 * 32
    p = Stream(operation, int((read + written) * 4 * elements), "float32")
    assert (p.elements, p.flops) == (elements, flops * elements)
    assert (p.bytes_moved, p.result_bytes) == ((read + written) * 4 * elements, written * 4 * elements)
    assert p.operand_bytes == read * 4 * elements


def test_sums_over_gpus_by_hand():
    """300 values on each of three GPUs: two additions a value; a GPU sends and receives 2 / 3 of its array twice."""
    p = AllReduce(1200, "0,1,2")
    assert (p.elements, p.flops, p.bytes_moved) == (300, 600, 1600)
    assert (p.footprint_bytes, AllReduce(1200, "0,1,2", form="in-place").footprint_bytes) == (2400, 1200)
    assert (AllReduce(1200, "0,1", "bfloat16").elements, AllReduce(1200, "0,1").bytes_moved) == (600, 1200)
    assert [x.shape for x in p.inputs(1)] == [(3, 300)]


@pytest.mark.parametrize(
    ("direction", "moved", "footprint"), [("h2d", 100, 100), ("d2h", 100, 100), ("d2d", 200, 200), ("both", 200, 200)]
)
def test_copies_by_hand(direction, moved, footprint):
    p = Transfer(direction, 100)
    assert (p.bytes_moved, p.footprint_bytes, p.locked_bytes) == (moved, footprint, 0)
    if direction != "d2d":
        assert Transfer(direction, 100, "pinned").locked_bytes == footprint
        assert Transfer(direction, 100, "pinned", "triad").footprint_bytes == 200


def test_copies_between_gpus_by_hand():
    assert (PeerCopy(1, 0, 100).bytes_moved, PeerCopy(1, 0, 100, 2).bytes_moved) == (100, 200)
    assert (PeerCopy(1, 0, 100).members, [x.nbytes for x in PeerCopy(1, 0, 100, 2).inputs(1)]) == ((0, 1), [100, 100])
    product = AtOnce("matmul", 4, "0,1,2")
    assert (product.together, product.flops, product.bytes_moved, product.rated) == (3, 128, 4 * 48, "flops")
    triad = AtOnce("triad", 1200, "0")
    assert (triad.together, triad.flops, triad.bytes_moved, triad.rated) == (1, 200, 1200, "bytes_moved")
    copy = AtOnce("h2d", 1200, "0,1")
    assert (copy.flops, copy.bytes_moved, copy.locked_bytes) == (0, 1200, 1200)


def test_invalid_batches_are_refused():
    for fields, words in (({"dtype": "int7"}, "int7"), ({"width": 7}, "8 values at least"), ({"steps": 0}, "steps")):
        with pytest.raises(ValueError, match=words):
            InputPipeline(**{"batch": 2, "width": 8, "steps": 1, **fields})


@pytest.mark.parametrize(("dtype", "item"), [("float32", 4), ("float64", 8), ("bfloat16", 2), ("uint8", 1)])
def test_batches_of_a_data_set_by_hand(dtype, item):
    p = InputPipeline(32, 10, 5, dtype)
    assert (p.samples, p.nbytes, p.footprint_bytes) == (160, 320 * item, 1600 * item)


def test_trainings_and_answers_by_hand():
    """A multilayer perceptron 4 - 5 - 5 - 3: 20 + 25 + 15 multiply-adds an answer; trained three times that, less the first
    layer's 20, as no gradient of the images is needed."""
    steps = {samples: Training("mlp-4-5x2-3", 32, samples).steps for samples in (1, 31, 32, 33, 64, 65)}
    assert steps == {1: 1, 31: 1, 32: 1, 33: 2, 64: 2, 65: 3}
    network = networks.find("mlp-4-5x2-3")
    assert networks.inference_flops(network) == 2 * 60
    assert networks.training_flops(network) == 2 * (3 * 60 - 20)
    assert Inference("mlp-4-5x2-3", 7).flops == 7 * 2 * 60
    weights = 4 * 5 + 5 + 5 * 5 + 5 + 5 * 3 + 3
    assert Inference("mlp-4-5x2-3", 7).footprint_bytes == 7 * 4 * 4 + 4 * weights * 4
    assert Training("mlp-4-5x2-3", 32, 100, dtype="uint8").footprint_bytes == 100 * 4 + 4 * weights * 4


def test_peaks_and_launches_by_hand():
    assert (Peak("tf32", 10).dtype, Peak("tf32", 10).bytes_moved, Peak("bfloat16", 10).dtype) == (
        "float32",
        0,
        "bfloat16",
    )
    assert Launch("elementwise", 3).footprint_bytes == 2 * 256 * 4
    assert [x.shape for x in Launch("matmul").inputs(1)] == [(16, 16), (16, 16)]
    assert [Launch(call).once for call in ("import", "device_start", "compile", "step")] == [True, True, True, False]
    x = np.zeros(256, np.float32)
    assert Launch("elementwise", 3).expected(x).tolist() == [3.0] * 256
    answers = {call: Launch(call, 5).expected().tolist() for call in ("step", "epoch", "train_on_batch")}
    assert answers == {"step": [5], "epoch": [5], "train_on_batch": [5]}


@pytest.mark.parametrize(("counted", "passed"), [(99, False), (100, True), (104, True), (106, False)])
def test_a_peak_may_run_5_percent_longer(counted, passed):
    p = Peak("float32", 2 * 4 * 100)
    assert reference.check(p, p.inputs(1, True), np.full(4, counted, np.float32)).passed is passed


def test_a_products_bias_has_a_number_per_column():
    """4 bytes each of A (2 x 4), B (4 x 3), C (2 x 3) and of 3 biases."""
    assert Matmul(2, 3, 4, "float32", epilogue="bias-relu").bytes_moved == 4 * (8 + 12 + 6 + 3)


def test_only_adams_second_moment_is_positive():
    _, _, first, second = Stream("adam", 28000, "float32").inputs(1)
    assert second.min() >= 0 > first.min()


@pytest.mark.parametrize(
    ("operation", "answer"),
    [("copy", [1, 2, 5]), ("scale", [3, 6, 15]), ("add", [11, 22, 35]), ("triad", [31, 62, 95]), ("read", [8])],
)
def test_passes_by_a_librarys_calls(operation, answer):
    """Of 1, 2, 5 and 10, 20, 30 with the scalar 3; a read is a sum. Twice, as its calls follow each other."""
    arrays = np.array([1.0, 2, 5]), np.array([10.0, 20, 30])
    run = library(np, Stream(operation, 48), arrays, np.zeros(len(answer)))
    assert run().tolist() == answer == run().tolist()


@pytest.mark.parametrize(
    ("operation", "inner"),
    [
        ("matmul", Matmul(64, 64, 64, "float32", "tf32")),
        ("triad", Stream("triad", 64, "float32")),
        ("h2d", Transfer("h2d", 64, "pinned")),
        ("d2h", Transfer("d2h", 64, "pinned")),
    ],
)
def test_every_gpus_work_equals_one_gpus(operation, inner):
    several = AtOnce(operation, 64, "0,2,3", "tf32" if operation == "matmul" else "float32")
    assert (several.inner, several.together, several.rated) == (inner, 3, inner.rated)
    assert (several.flops, several.bytes_moved) == (inner.flops or 0, inner.bytes_moved)
    assert several.locked_bytes == (64 if operation in ("h2d", "d2h") else 0)


@pytest.mark.parametrize(
    ("operation", "sizes"),
    [
        ("relu", [64]),
        ("triad", [64, 64]),
        ("maxpool_grad", [2048 * 3, 512 * 3]),
        ("adam", [16] * 4),
        ("batchnorm", [2048]),
    ],
)
def test_the_arrays_that_a_pass_reads(operation, sizes):
    """Of a pool's gradient the images and a quarter as many gradients."""
    nbytes = {"relu": 512, "triad": 768, "maxpool_grad": 2048 * 3 * 10, "adam": 28 * 16, "batchnorm": 2048 * 8}[
        operation
    ]
    arrays = Stream(operation, nbytes, "float32").inputs(3, True)
    assert [x.size for x in arrays] == sizes
    assert all((x == np.round(x)).all() for x in arrays) and len({x.tobytes() for x in arrays}) == len(arrays)


@pytest.mark.parametrize(("call", "sizes"), [("elementwise", 1), ("matmul", 2), ("copy", 1), ("empty", 0)])
def test_operands_are_whole_numbers_and_follow_the_seed(call, sizes):
    problem = Launch(call, 4)
    first, same, other = problem.inputs(7, True), problem.inputs(7, True), problem.inputs(9, True)
    assert len(first) == sizes
    for x, again, differs in zip(first, same, other, strict=True):
        assert (x == again).all() and (x == np.round(x)).all() and (x.size == 1 or (x != differs).any())
    assert all((x != np.round(x)).any() for x in problem.inputs(7))


def test_a_one_column_filter_reads_only_met_columns():
    """3 x 3 values, filters of 3 x 1 that reach past the rows alone, 3 x 3 results."""
    problem = Conv(1, 3, 3, 1, 1, 3, 1, pad="same")
    assert problem.bytes_moved == 4 * (9 + 3 + 9)
