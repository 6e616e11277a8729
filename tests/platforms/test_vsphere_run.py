"""A whole run on a simulated vSphere: create, dial back, measure, destroy; no secret in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from platforms.vendor_served import tare
from platforms.vsphere_simulated import PASSWORD, USER, booting, simulator
from tare.run.lifecycle.session import agent_path

pytestmark = [pytest.mark.slow, pytest.mark.boots]


async def test_a_run_measures_and_holds_no_secret(tmp_path: Path) -> None:
    with simulator() as there:
        arm = there.options().model_dump(mode="json", exclude_defaults=True, by_alias=True)
        # By the environment here: the other way is in every other test.
        del arm["credentials"]
        arm = {key.replace("_", "-"): value for key, value in arm.items()}
        study = {
            "study": "simulated",
            "baseline": "pv",
            "blocks": {"least": 2, "most": 2},
            "shape": {"vcpus": 1, "memory": "256MiB"},
            "arms": {
                "pv": {"platform": "vsphere", **arm},
                "emulated": {"platform": "vsphere", **arm, "devices": "emulated"},
            },
            "workloads": {"numeric-sort": {"duration": 0.2}},
        }
        file, out, state = tmp_path / "study.yaml", tmp_path / "out", tmp_path / "state"
        file.write_text(yaml.safe_dump(study))
        secrets = {
            "XDG_STATE_HOME": str(state),
            "TARE_VSPHERE_USER": USER,
            "TARE_VSPHERE_PASSWORD": PASSWORD,
        }
        async with booting(there, agent_path()) as firmware:
            status, output = await tare("run", str(file), "--out", str(out), **secrets)
        assert status == 0, output
        assert there.left() == []
        lines = (out / "events.jsonl").read_text().splitlines()
        events = [json.loads(line)["event"] for line in lines]
        ended = [event for event in events if event["type"] == "cell_finished"]
        assert [event["status"] for event in ended] == ["ok"] * 4, output
        assert "ESXi" in (out / "events.jsonl").read_text()
        assert len(firmware.keys) == 4
        planted = {PASSWORD, *firmware.keys}
        assert not [word for word in planted if word in output]
        looked_at = [path for place in (out, state) for path in place.rglob("*") if path.is_file()]
        assert looked_at
        for path in looked_at:
            content = path.read_bytes()
            assert not [word for word in planted if word.encode() in content], path
