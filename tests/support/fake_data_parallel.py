"""Trainings on several GPUs whose steps are known."""

from fake_measurements import row

from analysis.report.sections import several_gpus as page
from kernels.problems import Training
from workloads.records import Row, Settings

FIT = "training/keras/fit"
JAX = {"data": "synthetic", "keras_backend": "jax", "jit_compile": "on", "dropout": "off", "shuffle": "off"}
FEED = "mlp-3072-1x1-10"


def over(count, strategy):
    """Switches of a training on so many GPUs."""
    return ({"strategy": strategy} if strategy else {}) | ({"replicas": str(count)} if count > 1 else {})


def fit(
    seconds, batch=64, count=1, strategy="", model="cifar10-cnn", status="ok", given=None, device="gpu:0", **fields
):
    """A training row whose steps took so long."""
    own = {"switches": (given or JAX) | over(count, strategy), "device": device, "status": status}
    return row(FIT, Training(model, batch, 8 * batch), seconds, **own, **fields)


def two(seconds=2e-3, batch=64, summed=0.3e-3, **fields):
    """A training on two GPUs whose all-reduce of 6,670,376 bytes took `summed` seconds."""
    values = {"parameters": 1667594.0, "all_reduce_bytes": 6670376.0, "all_reduce_s": summed, "jit_compile": 1.0}
    series = {"all_reduce_s": (summed, summed, summed)} if summed else {}
    series |= fields.pop("series", {})
    return fit(seconds, batch, 2, "DataParallel", values=values | fields.pop("values", {}), series=series, **fields)


def fed(seconds, count=2, model=FEED):
    """A model of one unit under the strategy: what feeding so many GPUs takes."""
    return fit(seconds, model=model, count=count, strategy="DataParallel")


USUAL = (two(), fit(4e-3), fit(2.2e-3, 32), fit(1.8e-3, 32, strategy="DataParallel"), fed(1e-4))


def cells(rows):
    """Head -> cell of the only training in the table."""
    found = page.trainings(rows)
    ((*row_,),) = found.rows
    return dict(zip(found.heads, row_, strict=True))


SMALL = "mlp-12-16x1-3"


def part(count, batch=8, strategy="DataParallel", library="jax", model=SMALL, device="cpu", **given):
    chosen = {"data": "synthetic", "dropout": "off", "shuffle": "off", **given}
    chosen |= {"keras_backend": library} if library != "tensorflow" else {}
    return Row(FIT, Training(model, batch, 3 * batch), Settings(device, switches=chosen | over(count, strategy)))
