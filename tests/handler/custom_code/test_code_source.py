"""Which code of a model is the owner's: found without running any of it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from handler.config.endpoint_config import EndpointConfig
from handler.custom_code.code_source import CodeKind, check_code, find_code
from handler.custom_code.module_loader import load_module
from handler.errors import SettingError

BOMB = "raise SystemExit('it was run')\n"
HANDLE = "def handle(inputs):\n    return None\n"


def put(directory: Path, **files: str) -> str:
    for name, text in files.items():
        path = directory / name.replace("__", "/").replace("_py", ".py").replace("_txt", ".txt")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return str(directory)


def test_the_hooks_file_is_found_and_not_run(tmp_path: Path) -> None:
    source = find_code(EndpointConfig(), put(tmp_path, code__inference_py=BOMB), {})
    assert source is not None
    assert (source.file, source.kind) == (tmp_path / "code" / "inference.py", CodeKind.HOOKS)
    assert list(source.requirements) == []
    put(tmp_path, code__requirements_txt="six")
    assert source.requirements == (tmp_path / "code" / "requirements.txt",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (HANDLE, True),
        ("async " + HANDLE, True),
        ("from service import handle\n", True),
        ("handle = object()\n", True),
        ("class LlamaModel:\n    def handle(self): ...\n", False),
        ("not python", False),
    ],
)
def test_a_model_py_is_lmis_only_if_it_has_handle(tmp_path: Path, text: str, found: bool) -> None:
    source = find_code(EndpointConfig(), put(tmp_path, model_py=text + BOMB * found), {})
    assert (source is not None) is found
    assert source is None or source.kind is CodeKind.HANDLE


def test_nothing_is_found_where_nothing_is_or_where_it_is_forbidden(tmp_path: Path) -> None:
    assert find_code(EndpointConfig(), str(tmp_path), {}) is None
    put(tmp_path, code__inference_py=BOMB)
    assert find_code(EndpointConfig(custom_code=False), str(tmp_path), {}) is None


def test_the_sdks_name_for_the_program_is_honoured_or_missed_by_name(tmp_path: Path) -> None:
    put(tmp_path, code__serve_me_py=BOMB)
    (tmp_path / "code" / "serve_me.py").write_text(BOMB)
    source = find_code(EndpointConfig(), str(tmp_path), {"SAGEMAKER_PROGRAM": "serve_me.py"})
    assert source is not None
    assert source.file.name == "serve_me.py"
    other = {"SAGEMAKER_PROGRAM": "other.py"}
    # The SDK's variables for `entry_point="inference.py"` without `source_dir`.
    outside = {"SAGEMAKER_PROGRAM": "inference.py", "SAGEMAKER_SUBMIT_DIRECTORY": "s3://bucket/sourcedir.tar.gz"}
    for environ in (other, outside, {"SAGEMAKER_PROGRAM": "inference.py"}):
        with pytest.raises(SettingError, match=r"SAGEMAKER_PROGRAM.*source_dir="):
            find_code(EndpointConfig(), str(tmp_path), environ)
    assert find_code(EndpointConfig(custom_code=False), str(tmp_path), other) is None
    assert find_code(EndpointConfig(), str(tmp_path), {"SAGEMAKER_PROGRAM": ""}) is None
    jumpstart = {"SAGEMAKER_PROGRAM": "inference.py", "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code"}
    assert find_code(EndpointConfig(), str(tmp_path), jumpstart) is None


def test_both_kinds_are_too_many(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="one of the two"):
        find_code(EndpointConfig(), put(tmp_path, code__inference_py="", model_py=HANDLE), {})


def test_a_script_that_is_nested_too_deeply_is_as_one_that_cannot_be_parsed(tmp_path: Path) -> None:
    for text in ("x = (", f"x = {'-' * 100_000}1\n"):
        assert find_code(EndpointConfig(), put(tmp_path, model_py=text), {}) is None


def test_lmis_decorated_formatters_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="@output_formatter"):
        find_code(EndpointConfig(), put(tmp_path, model_py="@output_formatter\ndef mine(output): ...\n"), {})


def test_the_dependencies_of_an_archive_that_the_sdk_has_repacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    put(tmp_path, code__inference_py="from a_dependency_of_mine import ANSWER\n")
    (tmp_path / "code" / "lib").mkdir()
    (tmp_path / "code" / "lib" / "a_dependency_of_mine.py").write_text("ANSWER = 42\n")
    source = find_code(EndpointConfig(), str(tmp_path), {})
    assert source is not None
    assert load_module(source.file).ANSWER == 42


@pytest.mark.parametrize(
    ("files", "environ", "engine", "setting"),
    [
        ({}, {"SAGEMAKER_PROGRAM": "predict.py"}, "vllm", "SAGEMAKER_PROGRAM"),
        ({}, {"CUSTOM_SCRIPT_FILENAME": "x.py"}, "vllm", "CUSTOM_SCRIPT_FILENAME"),
        ({"model_py": HANDLE, "code__inference_py": BOMB}, {}, "vllm", "model.py"),
        ({"code__inference_py": "def predict_fn(data model):\n"}, {}, "vllm", "code/inference.py"),
        ({}, {}, "none", "engine"),
    ],
)
def test_code_that_the_start_would_refuse_is_refused_before(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], engine: str, setting: str
) -> None:
    with pytest.raises(SettingError) as caught:
        check_code(EndpointConfig(engine=engine), put(tmp_path, **files), environ)
    assert caught.value.setting == setting


def test_sound_code_passes_and_is_not_run(tmp_path: Path) -> None:
    check_code(EndpointConfig(engine="none"), put(tmp_path, code__inference_py=BOMB), {})
