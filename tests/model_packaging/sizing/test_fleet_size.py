"""The arithmetic of docs/scale.md: its inputs are those of the documents they are from, its examples are printed."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import sample_model
from handler.storage.s3_download import PART
from model_packaging.cli import main
from model_packaging.deployment.definition.limits import DISK_RATE
from model_packaging.sizing.fleet import FRONT_END, Demand, InstanceRates, fleet_for
from model_packaging.sizing.fleet_limits import LOOKS, POLL, S3_READS, limit_uses
from tests.simulation.fleet import Scenario, simulate
from tests.simulation.load_table import FLEETS, load_of

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "scale.md").read_text()
EXAMPLE = re.compile(r"^```text\n\$ neuron-endpoint (size [^\n]+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def run(*words: str) -> Result:
    """As on a terminal without colours."""
    terminal = {"COLUMNS": "120", "LINES": "50", "TERM": "dumb", "FORCE_COLOR": "1"}
    return CliRunner().invoke(main, ["size", *words], env=terminal)


def rates(tokens_per_second: float, in_flight: int = 1, weights: int = 0, price: float | None = None) -> InstanceRates:
    return InstanceRates(
        name="x", tokens_per_second=tokens_per_second, in_flight=in_flight, weights=weights, price=price, source=""
    )


@pytest.mark.parametrize(("words", "output"), EXAMPLE.findall(PAGE))
def test_the_page_has_what_is_printed(words: str, output: str) -> None:
    assert [line.rstrip() for line in run(*shlex.split(words)[1:]).stdout.splitlines()] == output.splitlines()


def test_the_rates_are_those_of_their_documents() -> None:
    benchmarks = (ROOT / "benchmarks" / "README.md").read_text()
    row = re.search(r"^\| `stream_tps_c(\d+)` \(tokens/s\) \| ([\d,]+) \|", benchmarks, re.MULTILINE)
    cpu = re.search(r"([\d.]+) CPU s per 1,000 streamed tokens at 32", benchmarks)
    recipe = (ROOT / "recipes" / "llama-3.3-70b-trn2.48xlarge.yaml").read_text()
    latency = re.search(r"then (\d+) ms a token", recipe)
    assert row
    assert cpu
    assert latency
    assert float(cpu[1]) == FRONT_END
    assert "max_num_seqs: 1\n" in recipe
    models = json.loads((ROOT / "tests" / "recipes" / "published_models.json").read_text())
    sample = (sample_model.path() / "model.safetensors").stat().st_size
    large = models["meta-llama/Llama-3.3-70B-Instruct"]["total_size"]
    for figure in (
        f"{row[2]} tokens/s",
        f"at {row[1]} requests at a time",
        f"--tokens-per-second {row[2].replace(',', '')} --in-flight {row[1]} --weights-gb {sample / 1e9:.3f} ",
        f"--tokens-per-second {1000 // int(latency[1])} --in-flight 1 --weights-gb {large / 1e9:.0f} ",
        f"ranged reads of {PART // 2**20} MiB",
        f"at {DISK_RATE / 1e6:.0f} MB/s",
        f"one in {POLL:.0f} s",
        f"{FRONT_END} CPU s",
        f"{S3_READS:,} reads a second",
        f"rate x {Demand(requests=1).use}",
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


@pytest.mark.parametrize("scenario", [each for each in FLEETS if each.instances <= 200], ids=str)
def test_the_table_of_loads_is_the_simulations(scenario: Scenario, tmp_path: Path) -> None:
    load = load_of(scenario, simulate(scenario, tmp_path))
    columns = (scenario.endpoints, scenario.instances, load.store, load.writes)
    means = (f"{load.polls:.1f}", f"{load.renewals:.1f}")
    assert f"| {' | '.join(map(str, (*columns, *means)))} |" in PAGE


def test_by_hand() -> None:
    """100 requests of 50 tokens at 1,000 tokens/s: 5,000 tokens/s, 10 instances at a half of their rate."""
    instance = rates(1000, in_flight=10, weights=160 * 1024**2, price=3.6)
    fleet = fleet_for(Demand(requests=100, output=50, use=0.5), instance)
    assert fleet.instances == 10
    assert fleet.cost_hour == pytest.approx(36)
    assert fleet.cost_million == pytest.approx(2)  # 36 for 18 million tokens
    assert fleet.request_seconds == pytest.approx(0.5)
    assert fleet.in_flight == pytest.approx(50)
    assert (fleet.reads, fleet.read_bytes) == (100, 10 * instance.weights)


@settings(deadline=None)
@given(st.floats(0.01, 1e6), st.integers(1, 10_000), st.floats(0.1, 1), st.floats(1, 1e6), st.integers(0, 10**13))
def test_any_fleet_carries_its_load_and_one_instance_less_would_not(
    requests: float, output: int, use: float, rate: float, weights: int
) -> None:
    fleet = fleet_for(Demand(requests=requests, output=output, use=use), rates(rate, weights=weights))
    assert fleet.instances * rate * use >= fleet.tokens * (1 - 1e-6)
    assert fleet.instances == 1 or (fleet.instances - 1) * rate * use < fleet.tokens
    shares = [limit.share for limit in limit_uses(fleet, 10, 10.0)]
    assert shares == sorted(shares, reverse=True)


def test_at_the_load_that_it_names_a_limit_is_reached() -> None:
    large = rates(50, weights=141_107_412_992)
    fleet = fleet_for(Demand(requests=1000, output=200), large)
    first = limit_uses(fleet)[0]
    assert first.what.startswith("S3 reads")
    there = fleet_for(Demand(requests=first.requests(fleet), output=200), large)
    again = next(limit for limit in limit_uses(there) if limit.what == first.what)
    assert again.needed == pytest.approx(S3_READS, rel=0.01)
    quotas = limit_uses(fleet, 100, 1e9)
    assert quotas[0].what == "instances of the account"
    assert quotas[0].requests(fleet) == pytest.approx(100 / fleet.instances * 1000)
    unknown = [limit for limit in limit_uses(fleet) if limit.limit is None]
    assert {limit.requests(fleet) for limit in unknown} == {inf}


MEASURED = ("--tokens-per-second", "500", "--in-flight", "8", "--weights-gb", "16", "--output-tokens", "200")


def test_the_command() -> None:
    words = ("--requests", "1000", *MEASURED, "--price", "2")
    told = json.loads(run(*words, "--instance-quota", "10", "--json").stdout)
    assert (told["instances"], told["cost_per_hour"], told["source"]) == (572, 1144.0, "as given")
    assert told["limits"][0]["what"] == "instances of the account"
    text = run(*words).stdout
    assert "572 instances" in text
    assert "Reached first of those that are known: S3 reads" in text


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--requests", "0"),
        ("--requests", "nan"),
        ("--use", "1.5"),
        ("--output-tokens", "0"),
        ("--tokens-per-second", "0"),
        ("--in-flight", "0"),
        ("--weights-gb", "-1"),
        ("--price", "-1"),
    ],
)
def test_what_is_no_load_is_refused(option: str, value: str) -> None:
    result = run("--requests", "1", *MEASURED, option, value)
    assert result.exit_code == 2
    assert option in result.stderr
