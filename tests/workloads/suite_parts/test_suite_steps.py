"""The steps of a suite."""

from workloads.suite_parts import suite_steps

GPU = ["gpu:0"]


def test_a_gpu_is_measured_in_supported_arithmetic():
    def asked(quick, *lacking):
        there = suite_steps.parts(quick, GPU, lacks=lambda math: f"no {math}" * (math in lacking))
        own = [flags for name, flags in there if name != "transfer" and flags.get("device", GPU) == GPU]
        return [flags["dtypes"] for flags in own if "dtypes" in flags]

    assert asked(True) == asked(True, "bfloat16") == [["tf32"]] * 2
    assert asked(True, "tf32", "bfloat16") == [["float32"]] * 2
    assert asked(False)[0] == ["float32", "float64", "tf32", "float16", "bfloat16"]
    assert asked(False, "tf32", "bfloat16") == [["float32", "float64", "float16"]] * 2 + [["float32"]] * 2


def test_every_step_is_planned_and_has_words():
    names = {name for quick in (True, False) for name, _ in suite_steps.parts(quick, GPU, several=True)}
    assert names == suite_steps.WORDS.keys()
