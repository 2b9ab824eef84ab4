"""Operations of a traced step that are compiled into one kernel, by hand on records."""

from traced_steps import BATCH, CHAIN, HIDDEN, adam, array, operation, problems, samples, step, update

from analysis.predict.step_kernels import traced_fusion
from analysis.predict.step_kernels.traced_kernel import StepPrecision
from kernels.problems import Stream

PLAIN = StepPrecision()


def test_successive_operations_compile_into_one_kernel():
    """Bias, activation, product of two arrays and the sum that ends them; a negation; the gradient's two; its product."""
    kernels = traced_fusion.compiled(CHAIN, BATCH, PLAIN, "gpu:0")
    assert [kernel.operations for kernel in kernels] == [1, 4, 1, 2, 1]
    assert kernels[1].problem == Stream("add", 3 * 8 * 4 * BATCH, "float32")
    assert kernels[3].problem == Stream("relu_grad", 3 * 8 * 4 * BATCH, "float32")
    assert [kernel.direction for kernel in kernels[3:]] == ["ReluGrad_grad", "wgrad"]


def test_a_sum_ends_its_kernel():
    negation = operation("Neg", "element-wise", [HIDDEN], [HIDDEN])
    total = operation("Sum", "reduction", [HIDDEN], [samples()])
    root = operation("Sqrt", "element-wise", [samples()], [samples()])
    for chain, counts in (([negation, total, negation], [2, 1]), ([negation, root, root], [1, 2])):
        kernels = traced_fusion.compiled(step(*chain), BATCH, PLAIN, "gpu:0")
        assert [kernel.operations for kernel in kernels] == counts


def test_two_optimizers_update_each_variable_in_one_kernel():
    """Adam reads the gradient and reads and sets three arrays: 7 passes; SGD, one array: 3. On a CPU a kernel for each."""
    both = step(*adam(3, 5), *adam(3, 5), update("Mul", 7, 2), update("AssignSubVariableOp", 7, 2))
    kernels = traced_fusion.compiled(both, BATCH, PLAIN, "gpu:0")
    assert problems(kernels) == [
        Stream("adam", 7 * 15 * 4, "float32"),
        Stream("adam", 7 * 15 * 4, "float32"),
        Stream("sgd", 3 * 14 * 4, "float32"),
    ]
    assert {kernel.part for kernel in kernels} == {"optimizer"}
    assert [kernel.launches for kernel in kernels] == [1, 1, 1]
    assert [kernel.launches for kernel in traced_fusion.compiled(both, BATCH, PLAIN, "cpu")] == [3, 3, 1]


def test_a_kernel_drawing_numbers_is_a_dropout():
    """10 samples of 6 numbers are drawn, compared and multiplied; the widest of these reads two arrays and writes one."""
    drawn = operation("StatelessRandomUniformV2", "element-wise", [array(2, dtype="int64")], [samples(6)])
    kept = operation("GreaterEqual", "element-wise", [samples(6)], [samples(6)])
    scaled = operation("Mul", "element-wise", [samples(6), samples(6)], [samples(6)])
    kernels = traced_fusion.compiled(step(drawn, kept, scaled), BATCH, PLAIN, "gpu:0")
    assert problems(kernels) == [Stream("dropout", 2 * 10 * 6 * 4, "float32")]


def test_sgd_with_momentum_sets_two_arrays():
    """It reads the gradient, and reads and sets the momentum and the variable: 5 passes."""
    names = ["Mul", "AssignAddVariableOp", "Mul", "AssignSubVariableOp"]
    kernels = traced_fusion.compiled(step(*(update(name, 3, 5) for name in names)), BATCH, PLAIN, "gpu:0")
    assert problems(kernels) == [Stream("sgd", 5 * 15 * 4, "float32")]
