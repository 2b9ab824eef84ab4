"""The parts of a step that a profile knows."""

from fake_measurements import GPU_MACHINE, H200
from msgspec.structs import replace

from analysis.predict import components, profile
from kernels import networks
from kernels.problems import Training
from workloads.records import Settings

MLP = Training("mlp-784-100x2-10", 32, 2048)
CPU, GPU = Settings("cpu"), Settings("gpu:0")


def test_a_gpu_without_tf32_multiplies_in_float32(whole):
    """The rows are those of a GPU that has them, named float32; of half the size nothing is known, and nothing is saved."""

    def single(m):
        tf32 = m.problem.math == "tf32"
        return replace(m, problem=replace(m.problem, math="float32")) if tf32 else m

    gpu = replace(H200, compute_capability="7.5")
    old = profile.Profile(map(single, whole.measurements), replace(GPU_MACHINE, gpus=(gpu,)))
    network = networks.find(MLP.model)
    made, other = (components.components(MLP, GPU, of, network) for of in (old, whole))
    assert made.parts == other.parts and made.partial == other.partial == ()
    mixed = replace(GPU, switches={**GPU.switches, "precision": "mixed_bfloat16"})
    lower, instead = (components.components(MLP, mixed, of, network) for of in (old, whole))
    why = "bfloat16 needs a GPU of compute capability 8.0 or newer, this one has 7.5: priced as float32"
    assert lower.partial == (why,) and lower.parts == made.parts != instead.parts
    assert profile.measuring("conv", "gpu:0", "float32")[-3] == "float32"
