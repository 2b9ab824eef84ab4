"""The devices of a fleet, and their baselines."""

import os

import fake_measurements as fake

from analysis.fleet import devices
from workloads.records import baselines


def test_baselines_match_cpus_by_node_gpus_by_uuid():
    def device(node: str, name: str, uuid: str = "", model: str = "a model") -> devices.Device:
        return devices.Device(
            node=node, device=name, uuid=uuid, model=model, machine=fake.GPU_MACHINE, rows={}, broken=()
        )

    old = tuple(device(node, "cpu") for node in ("n2", "n1")) + tuple(
        device("n1", f"gpu:{i}", f"GPU-{i}") for i in (0, 1)
    )
    newer = (device("n3", "cpu"),)
    wanted = [
        (device("n1", "cpu"), old[1]),
        (device("n2", "cpu"), old[0]),
        (device("n3", "cpu"), newer[0]),
        (device("n4", "cpu"), None),
        (device("n1", "cpu", model="another model"), None),
        (device("n9", "gpu:0", "GPU-1"), old[3]),  # it was moved
        (device("n1", "gpu:0", "GPU-7"), None),
    ]
    for one, baseline in wanted:
        assert devices.stored_baseline(one, [newer, old]) is baseline


def test_the_newest_saved_baseline_comes_first():
    for name, saved_at in (("a", 100), ("b", 300), ("c", 200)):
        (baselines.FOLDER / name).mkdir(parents=True)
        os.utime(baselines.FOLDER / name, (saved_at, saved_at))
    assert [folder.name for folder in devices.saved()] == ["b", "c", "a"]
