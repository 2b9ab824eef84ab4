"""The rows that a model's layers are summed up beside: its training step, and what a step costs around them."""

from collections.abc import Sequence

from analysis.training import pipeline_costs
from kernels.problems import InputPipeline, Launch
from workloads.records import Row, Settings
from workloads.shared_flags import Measuring

#: Steps of a model with almost no work: the cost of one is the slope between both rows.
_STEPS = (1, 64)


def rows(
    model: str, sample_values: int, layers: Sequence[Row], *, on: Sequence[str], measuring: Measuring
) -> list[Row]:
    """A training of the model for each batch and device, steps of a model with almost no work, and these with batches of the
    model's own size. sample_values: numbers in a sample's inputs."""
    from workloads.frameworks import grid, studies

    batches = dict.fromkeys(row.problem.batch for row in layers)
    width = max(sample_values, InputPipeline.LEAST_WIDTH)
    pipelines = [InputPipeline(batch, width, pipeline_costs.steps(batch, width)) for batch in batches]
    trainings = grid.problems(
        [model], data_set="synthetic", batches=list(batches), samples=(), steps=None, epochs=(), dtypes=["float32"]
    )
    every: list[Row] = []
    for device in on:
        counts = measuring.threads if device == "cpu" else ()
        for threads in counts or (None,):
            plain = Settings(device, threads)
            for training in trainings:
                how = Settings(device, threads, switches={"data": "synthetic"})
                every.append(Row(studies.FIT, training, how))
            every += [Row("launch/tensorflow/fit", Launch("step", count), plain) for count in _STEPS]
            every += [Row("feeding/keras/numpy", pipeline, plain) for pipeline in pipelines]
    return every
