"""The figures of docs/scale.md: they are those of the documents and of the code that they are from."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import sample_model
from handler.artifacts.lease.acquisition import AcquisitionOptions
from handler.storage.s3_download import PART
from model_packaging.deployment.definition.limits import EBS_RATE
from model_packaging.sizing.instance_options import Demand
from tests.simulation.fleet import Scenario, simulate
from tests.simulation.load_table import FLEETS, load_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scale.md").read_text()
LOOKS, POLL = 5, AcquisitionOptions().poll


def test_the_figures_are_those_of_their_documents() -> None:
    benchmarks = (ROOT / "benchmarks" / "README.md").read_text()
    row = re.search(r"^\| `stream_tps_c32` \(tokens/s\) \| ([\d,]+) \|", benchmarks, re.MULTILINE)
    cpu = re.search(r"([\d.]+)0 CPU s per 1,000 streamed tokens at 32", benchmarks)
    latency = re.search(r"then (\d+) ms a token", (ROOT / "recipes" / "llama-3.3-70b-trn2.48xlarge.yaml").read_text())
    assert row
    assert cpu
    assert latency
    models = json.loads((ROOT / "tests" / "recipes" / "published_models.json").read_text())
    sizes = {
        float(row[1].replace(",", "")): (sample_model.path() / "model.safetensors").stat().st_size,
        1000 / int(latency[1]): models["meta-llama/Llama-3.3-70B-Instruct"]["total_size"],
    }
    demand = Demand(requests=1000, output=200)
    for rate, size in sizes.items():
        assert f"| {rate:,.0f} | {demand.instances(rate):,} | " in PAGE
        assert f"{demand.instances(rate) * round(size / 1e9, 3) / 1000:.1f} TB" in PAGE or size < 1e9
    for figure in (
        f"ranged reads of {PART // 2**20} MiB",
        f"at {EBS_RATE / 1e6:.0f} MB/s an instance: {EBS_RATE / PART:.0f} a second for each",
        f"one in {POLL:.0f} s from each instance, and {LOOKS} looks",
        f"{cpu[1]} CPU s for 1,000 streamed tokens",
        f"one process serves {1000 / float(cpu[1]):,.0f} tokens/s",
        f"(rate x {demand.use})",
    ):
        assert figure in PAGE, figure


def test_the_polls_are_those_of_the_products_own_code(tmp_path: Path) -> None:
    """50 instances that start within a minute while one of them compiles, in virtual time."""
    scenario = Scenario(instances=50, compile=600.0)
    asked: Counter[str] = Counter()
    for counts in simulate(scenario, tmp_path).bucket.requests.values():
        asked += counts
    waited = scenario.compile - scenario.within / 2
    assert asked["get leases"] == pytest.approx(49 * waited / POLL, rel=0.1)
    assert asked["get manifests"] + asked["get failures"] == pytest.approx(50 * LOOKS, rel=0.1)


@pytest.mark.parametrize("scenario", [fleet for fleet in FLEETS if fleet.instances <= 200], ids=str)
def test_the_table_of_loads_is_the_simulations(scenario: Scenario, tmp_path: Path) -> None:
    load = load_of(scenario, simulate(scenario, tmp_path))
    columns = (scenario.endpoints, scenario.instances, load.store, load.writes)
    means = (f"{load.polls:.1f}", f"{load.renewals:.1f}")
    assert f"| {' | '.join(map(str, (*columns, *means)))} |" in PAGE
