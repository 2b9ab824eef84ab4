"""The published cases: every one can be run, with its network's settings."""

from kernels import networks
from workloads.records import published_cases
from workloads.records.published_cases import COMPLAINTS


def test_every_case_is_a_runnable_training():
    assert len(COMPLAINTS) == 8
    for r in (r for c in COMPLAINTS for r in c.reported):
        assert networks.find(r.training.model) and r.faster in ("cpu", "gpu", "neither")
    for q in published_cases.QUESTIONS:
        assert networks.find(q.training.model)


def test_every_case_has_the_networks_settings():
    assert [case.name for case in published_cases.CASES] == ["S0", "S1a", "S1b", "S2", "S4"]
    for case in published_cases.CASES:
        of = networks.find(case.model)
        assert (of.seed, of.batch, of.samples, of.epochs) == (case.name, case.batch, case.samples, case.epochs)
        assert all(claim.faster in ("cpu", "gpu", "neither") and claim.words for claim in case.claims)
