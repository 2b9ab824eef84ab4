"""What happens once in a training: starting the library, compiling, and making the data set from its arrays."""

from collections.abc import Sequence
from math import log2, prod

from analysis.predict.curves import Curve, curve, measured_pass
from analysis.predict.passes import pass_seconds
from analysis.predict.profile import DATA_SET, JIT, OP_BY_OP, Profile, cached_in_profile
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.stats import NOTHING, Estimate, independent_sum, quick_median, total, within_factor
from analysis.training import costs
from kernels import networks
from kernels.networks import Network
from kernels.problems import Conv, Matmul, Stream, Training
from kernels.problems.arrays import ITEM_BYTES

#: Bytes of a data set from which a row tells seconds a byte: of fewer, making the set is most of it, and that is a constant of a
#: fit.
_LEAST_SET_BYTES = 4 << 20


@cached_in_profile
def start(profile: Profile, device: str) -> Estimate:
    """Seconds of importing TensorFlow and starting the device: as measured in trainings on the device, of whatever model, else in
    launch rows; 0 without both."""
    on_device = [training for training in profile.trainings if training.device == device]
    measured = costs.start(on_device[0], profile.trainings) if on_device else None
    if measured is not None:
        return measured
    library = profile.constant("import-tensorflow", "cpu")
    return total((library, profile.constant("device-start-tensorflow", device)))


def small_compilation(profile: Profile, device: str, execution: str) -> Estimate:
    """Seconds of the first compilation of a model with almost no work: Keras's on the device, else TensorFlow's there, else
    TensorFlow's on the CPU; 0 without rows."""
    jit = JIT[execution]
    return (
        profile.constant("compile-keras", device)
        or profile.constant("compile-tensorflow", device, jit)
        or profile.constant("compile-tensorflow", "cpu", jit)
        or NOTHING
    )


def compiled_work(kernels: Sequence[StepKernel], execution: str) -> float:
    """A measure of the work in a compilation, with which its time grows (Components.traced).

    Op by op: the number of operations. Compiled: the sum of the logarithms of the sizes of the distinct products, as XLA tries
    every tile that fits into one. Of a convolution only the filters count, as its images are always larger than a tile.
    """
    if execution == OP_BY_OP:
        return sum(kernel.operations for kernel in kernels)  # a loop's are traced once
    tiled = [kernel.problem for kernel in kernels if kernel.part in ("matmul", "conv")]
    sizes = []
    for problem in dict.fromkeys(tiled):
        if isinstance(problem, Matmul):
            sizes.append(problem.m * problem.n * problem.k)
        elif isinstance(problem, Conv):
            sizes.append(problem.c_in // problem.groups * problem.c_out * problem.r * problem.s)
    return sum(log2(max(2, size)) for size in sizes)


def data_set_setup(profile: Profile, network: Network, training: Training, device: str) -> Estimate:
    """Seconds that Keras's fit takes to make a tf.data set from NumPy arrays, uncertain by a factor of 2 either way.

    They are read from rows of making such sets, by bytes; without rows, it counts as one pass that reads and writes the samples.
    Types other than float32 are cast first, which is such a pass too.
    """
    float32_bytes = training.samples * prod(network.input) * ITEM_BYTES["float32"]
    seconds = []
    sets = _sets(profile, device)
    if sets is not None:
        seconds.append(sets.seconds_of_bytes(float32_bytes))
    if sets is None or training.dtype != "float32":
        moved_bytes = training.samples * networks.sample_bytes(network, training.dtype) + float32_bytes
        smallest_pass_bytes = 8  # an element read and written
        copy = Stream("copy", max(smallest_pass_bytes, moved_bytes), "float32")
        cast = pass_seconds(profile, copy, "cpu", OP_BY_OP)
        if cast is not None:
            seconds.append(cast.seconds)
    return within_factor(independent_sum(seconds).value, 2)


@cached_in_profile
def _sets(profile: Profile, device: str) -> Curve | None:
    """Seconds of making a tf.data set from NumPy arrays, by the samples' bytes; None without rows."""
    sets = []
    for row in profile.measurements:
        if row.kernel != DATA_SET or row.device != device or not row.ok or not row.samples:
            continue
        nbytes = row.problem.nbytes / 2
        if nbytes > _LEAST_SET_BYTES:
            sets.append(measured_pass(nbytes, quick_median(row.samples[0])))
    return curve(sets, has_constant=False)
