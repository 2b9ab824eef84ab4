"""The rows that a model's layers are summed up beside: its training step, and what a step costs around them."""

from collections.abc import Sequence

from analysis.training import pipeline_costs
from kernels.problems import InputPipeline, Launch
from workloads.records import Row, Settings
from workloads.shared_flags import Measuring

#: Steps of a model with almost no work: the cost of one is the slope between both rows.
_STEPS = (1, 64)


def rows(
    model: str, sample_values: int, layers: Sequence[Row], *, devices: Sequence[str], measuring: Measuring
) -> list[Row]:
    """The rows that the sum of a model's layers is compared with: trainings of the model, and what a step costs besides its
    layers.

    For each device there is a training of the model in each batch of its layers; 1 and 64 steps of a model with almost no work,
    whose difference is Keras's cost of a step; and for each batch the time in which samples as large as the model's reach a step.
    sample_values: numbers in a sample's inputs. layers: the rows of the model's layers.
    """
    from workloads.frameworks import grid, studies

    batches = dict.fromkeys(row.problem.batch for row in layers)
    width = max(sample_values, InputPipeline.LEAST_WIDTH)
    pipelines = [InputPipeline(batch, width, pipeline_costs.steps(batch, width)) for batch in batches]
    trainings = grid.problems(
        [model], data_set="synthetic", batches=list(batches), samples=(), steps=None, epochs=(), dtypes=["float32"]
    )
    step_rows: list[Row] = []
    for device in devices:
        counts = measuring.threads if device == "cpu" else ()
        for threads in counts or (None,):
            settings = Settings(device, threads=threads)
            for training in trainings:
                on_synthetic_data = Settings(device, threads=threads, switches={"data": "synthetic"})
                step_rows.append(Row(studies.FIT, training, on_synthetic_data))
            step_rows += [Row("launch/tensorflow/fit", Launch("step", count), settings) for count in _STEPS]
            step_rows += [Row("feeding/keras/numpy", pipeline, settings) for pipeline in pipelines]
    return step_rows
