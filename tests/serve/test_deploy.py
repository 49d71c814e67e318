"""The files in deploy/ fit the command, the routes and the metrics of this version."""

from __future__ import annotations

import configparser
import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from serve_tools import batch, open_service

from driftwise.cli.main import parser
from driftwise.serve.access import ROLES
from driftwise.serve.measures import Measures, prometheus

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_every_metric_of_the_dashboard_exists(tmp_path: Path) -> None:
    text = (DEPLOY / "grafana" / "dashboard.json").read_text()
    panels = json.loads(text)["panels"]
    used = {
        name.removesuffix("_bucket")
        for panel in panels
        for target in panel["targets"]
        for name in re.findall(r"driftwise_\w+", target["expr"])
    }
    measures = Measures()
    measures.add("/v1/predict", 200, 0.01)
    with open_service(tmp_path) as service:
        service.observe(*batch(0)).result(30)
        service.observe(*batch(1)).result(30)
        service.probe(*batch(2)).result(30)
        known = set(re.findall(r"^# TYPE (\w+)", prometheus(service, measures), re.MULTILINE))
    assert used <= known, used - known
    places = [tuple(panel["gridPos"].values()) for panel in panels]
    assert len(places) == len(set(places))


@pytest.mark.parametrize("file", ["Dockerfile", "driftwise.service"])
def test_the_command_is_one_that_there_is(file: str) -> None:
    text = (DEPLOY / file).read_text()
    if file == "Dockerfile":
        lists = re.findall(r"^(?:ENTRYPOINT|CMD) (\[.*\])$", text, re.MULTILINE)
        words = [word for each in lists for word in json.loads(each)]
    else:
        unit = configparser.ConfigParser(strict=False, interpolation=None)
        unit.read_string(text)
        assert {"Unit", "Service", "Install"} == set(unit.sections())
        words = shlex.split(unit["Service"]["ExecStart"])
    arguments = parser().parse_args(words[1:])
    assert arguments.tokens is not None
    assert arguments.network == "mlp"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path) -> None:
    text = (DEPLOY / "driftwise.service").read_text()
    unit = tmp_path / "driftwise.service"
    unit.write_text(text.replace("/opt/driftwise/bin/driftwise", "/bin/true"))  # it must exist
    found = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, timeout=60
    )
    assert (
        found.returncode,
        [line for line in found.stderr.splitlines() if unit.name in line],
    ) == (
        0,
        [],
    )


def test_compose_names_files_volumes_and_secrets_that_there_are() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            there = (DEPLOY / source).exists() if source[0] == "." else source in compose["volumes"]
            assert there, source
        assert set(service.get("secrets", ())) <= set(compose["secrets"])
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:"), "reachable from this machine alone"
    parser().parse_args(["serve", *compose["services"]["driftwise"]["command"]])
    scrape = yaml.safe_load((DEPLOY / "prometheus.yaml").read_text())["scrape_configs"][0]
    assert scrape["metrics_path"] == "/metrics"
    secret = Path(scrape["authorization"]["credentials_file"]).name
    assert secret in compose["services"]["prometheus"]["secrets"]
    assert (DEPLOY / "grafana" / "provider.yaml").exists()
    assert "admin" in ROLES
