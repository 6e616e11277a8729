"""As many threads as the machine has CPUs: counted by the host, so that all arms do the same."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from tare.workloads import WORKLOADS, MachineFacts, fitted


@pytest.mark.parametrize("name", ["bytemark", "lu", "memory-bandwidth"])
def test_all_threads_are_as_many_as_the_host_says(name: str) -> None:
    workload = WORKLOADS[name]
    facts = MachineFacts(vcpus=3)
    for asked, threads in (("all", 3), (2, 2)):
        parameters = workload.parameters.model_validate({"threads": asked})
        assert fitted(workload, workload.request(parameters), facts)["threads"] == threads


@pytest.mark.parametrize("wrong", ["some", 0, 1025, 1.5, True, None])
def test_a_wrong_number_of_threads_is_refused(wrong: object) -> None:
    with pytest.raises(ValidationError, match="a whole number from 1 to 1024, or `all`"):
        WORKLOADS["lu"].parameters.model_validate({"threads": wrong})
