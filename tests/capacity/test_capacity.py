"""The arithmetic of docs/scale.md: its inputs are those of the documents they are from, its tables are computed."""

from __future__ import annotations

import json
import re
from collections import Counter
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

import sample_model
from handler.errors import SettingError
from model_packaging.capacity import measured, page
from model_packaging.capacity.fleet_size import Demand, fleet_for
from model_packaging.capacity.limit_usage import CapacityQuotas, strains
from model_packaging.capacity.measured import LLAMA_70B, LOOKS, POLL, S3_READS, SAMPLE, MeasuredServer
from model_packaging.cli import main
from tests.simulation.fleet import Scenario, simulate

ROOT = Path(__file__).parents[2]


def test_the_page_has_what_is_computed() -> None:
    text = page.PAGE.read_text()
    assert set(re.findall(r"<!-- table (\S+) -->", text)) == set(page.tables())
    assert page.filled(text) == text, "python -m model_packaging.capacity.page writes it anew"


def test_the_rates_are_those_of_their_documents() -> None:
    benchmarks = (ROOT / "benchmarks" / "README.md").read_text()
    row = re.search(r"^\| `stream_tps_c(\d+)` \(tokens/s\) \| ([\d,]+) \|", benchmarks, re.MULTILINE)
    assert row
    assert (SAMPLE.in_flight, SAMPLE.tokens_per_second) == (int(row[1]), float(row[2].replace(",", "")))
    cpu = re.search(r"([\d.]+) CPU s per 1,000 streamed tokens at 32", benchmarks)
    assert cpu
    assert float(cpu[1]) == measured.FRONT_END
    assert SAMPLE.weights == (sample_model.path() / "model.safetensors").stat().st_size
    recipe = (ROOT / "recipes" / "llama-3.3-70b-trn2.48xlarge.yaml").read_text()
    latency = re.search(r"then (\d+) ms a token", recipe)
    assert latency
    assert LLAMA_70B.tokens_per_second == 1000 / int(latency[1])
    assert "max_num_seqs: 1\n" in recipe
    models = json.loads((ROOT / "tests" / "recipes" / "published_models.json").read_text())
    assert LLAMA_70B.weights == models["meta-llama/Llama-3.3-70B-Instruct"]["total_size"]
    assert "not measured here" in LLAMA_70B.source
    text = page.PAGE.read_text()
    for figure in (
        f"{SAMPLE.tokens_per_second:,.0f} tokens/s",
        f"at {SAMPLE.in_flight} requests at a time",
        f"so {LLAMA_70B.tokens_per_second} tokens/s; {LLAMA_70B.weights / 1e9:.0f} GB",
        f"ranged reads of {measured.READ_SIZE // 2**20} MiB",
        f"at {measured.RESTORE_RATE / 1e6:.0f} MB/s",
        f"one in {POLL:.0f} s",
        f"{measured.FRONT_END} CPU s",
        f"{S3_READS:,} reads a second",
        f"rate x {Demand(requests=1).use}",
    ):
        assert figure in text, figure


def test_the_polls_are_those_of_the_products_own_code(tmp_path: Path) -> None:
    """50 instances that start within a minute while one of them compiles, in virtual time."""
    scenario = Scenario(instances=50, compile=600.0)
    asked: Counter[str] = Counter()
    for counts in simulate(scenario, tmp_path).bucket.requests.values():
        asked += counts
    waited = scenario.compile - scenario.within / 2
    assert asked["get leases"] == pytest.approx(49 * waited / POLL, rel=0.1)
    assert asked["get manifests"] + asked["get failures"] == pytest.approx(50 * LOOKS, rel=0.1)


def test_by_hand() -> None:
    """100 requests of 50 tokens at 1,000 tokens/s: 5,000 tokens/s, 10 instances at a half of their rate."""
    server = MeasuredServer(name="x", tokens_per_second=1000, in_flight=10, weights=160 * 1024**2, source="")
    fleet = fleet_for(Demand(requests=100, tokens=50, use=0.5, price=3.6), server)
    assert fleet.instances == 10
    assert fleet.cost_hour == pytest.approx(36)
    assert fleet.cost_million == pytest.approx(2)  # 36 for 18 million tokens
    assert fleet.request_seconds == pytest.approx(0.5)
    assert fleet.in_flight == pytest.approx(50)
    assert (fleet.reads, fleet.read_bytes) == (100, 10 * server.weights)


@settings(deadline=None)
@given(st.floats(0.01, 1e6), st.integers(1, 10_000), st.floats(0.1, 1), st.floats(1, 1e6), st.integers(0, 10**13))
def test_any_fleet_carries_its_load_and_one_instance_less_would_not(
    requests: float, tokens: int, use: float, rate: float, weights: int
) -> None:
    server = MeasuredServer(name="x", tokens_per_second=rate, in_flight=1, weights=weights, source="")
    fleet = fleet_for(Demand(requests=requests, tokens=tokens, use=use), server)
    assert fleet.instances * rate * use >= fleet.tokens * (1 - 1e-6)
    assert fleet.instances == 1 or (fleet.instances - 1) * rate * use < fleet.tokens
    shares = [strain.share for strain in strains(fleet, CapacityQuotas(10, 10.0))]
    assert shares == sorted(shares, reverse=True)


def test_at_the_load_that_it_names_a_limit_is_met() -> None:
    fleet = fleet_for(Demand(requests=1000), LLAMA_70B)
    first = strains(fleet)[0]
    assert first.what.startswith("S3 reads")
    met = first.requests(fleet)
    there = fleet_for(Demand(requests=met), LLAMA_70B)
    again = next(strain for strain in strains(there) if strain.what == first.what)
    assert again.needed == pytest.approx(S3_READS, rel=0.01)
    quotas = strains(fleet, CapacityQuotas(instances=100, invocations=1e9))
    assert quotas[0].what == "instances of the account"
    assert quotas[0].requests(fleet) == pytest.approx(100 / fleet.instances * 1000)
    unknown = [strain for strain in strains(fleet) if strain.limit is None]
    assert {strain.requests(fleet) for strain in unknown} == {inf}


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["capacity", *words], env={"COLUMNS": "120"})


def test_the_command() -> None:
    words = (
        "--requests",
        "1000",
        "--tokens-per-second",
        "500",
        "--in-flight",
        "8",
        "--weights-gb",
        "16",
        "--price",
        "2",
    )
    told = json.loads(run(*words, "--instance-quota", "10", "--json").stdout)
    assert (told["instances"], told["cost_per_hour"], told["source"]) == (572, 1144.0, "as given")
    assert told["strains"][0]["what"] == "instances of the account"
    text = run(*words).stdout
    assert "572 instances" in text
    assert "Met first of those that are known: S3 reads" in text
    assert run("--requests", "1", "--like", "x").exit_code == 2


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (("--requests", "0"), "--requests"),
        (("--requests", "nan"), "--requests"),
        (("--requests", "1", "--use", "1.5"), "--use"),
        (("--requests", "1", "--output-tokens", "0"), "--output-tokens"),
        (("--requests", "1", "--tokens-per-second", "0"), "--tokens-per-second"),
        (("--requests", "1", "--in-flight", "0"), "--in-flight"),
        (("--requests", "1", "--weights-gb", "-1"), "--weights-gb"),
        (("--requests", "1", "--price", "-1"), "--price"),
    ],
)
def test_what_is_no_load_is_refused(words: tuple[str, ...], setting: str) -> None:
    result = run(*words)
    assert result.exit_code == 1
    assert setting in result.stderr


def test_a_server_says_where_its_rate_is_from() -> None:
    with pytest.raises(SettingError):
        MeasuredServer(name="x", tokens_per_second=-1, in_flight=1, weights=0, source="")
    assert all(server.source for server in measured.SERVERS.values())
