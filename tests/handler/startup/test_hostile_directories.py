"""Seeded model directories as somebody hostile would fill them, through `check`, the start and `POST /models`.

Nothing of them runs, nothing outside is read, nothing hangs, and no 500 MB of memory are taken. What is refused is
refused with an error of the product. `HOSTILE_DIRECTORIES=2000` runs those that the note counts; CI runs 200.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from handler.config.fields import fields
from handler.config.loading.config_loader import load
from handler.engine.frontend_args import front_end
from handler.errors import EndpointError
from handler.model.model_source import fetch_model
from handler.neuron.planning.file_examination import with_files
from handler.startup.checked_plan import checked_plan
from handler.startup.multi_model.model_start import prepare, whole_model
from model_packaging.examination_report import examine
from tests.small_model import CONFIG, write_small_model

pytestmark = pytest.mark.slow
CASES = int(os.environ.get("HOSTILE_DIRECTORIES", "200"))
SEED = int(os.environ.get("SEED", "35"))
# Seconds. A case takes less than one; this is for what waits for ever.
HANGS = 100
MB = 1 << 20
opened: list[str] = []
watching = False


def peak_bytes() -> tuple[int, int]:
    """The most memory that this process, and any one child of it that has ended, has had."""
    who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return resource.getrusage(who[0]).ru_maxrss * 1024, resource.getrusage(who[1]).ru_maxrss * 1024


def watch(event: str, arguments: tuple[Any, ...]) -> None:
    if watching and event == "open" and isinstance(arguments[0], str | bytes):
        opened.append(os.fsdecode(arguments[0]))


sys.addaudithook(watch)

NAMES = """config.json generation_config.json tokenizer.json tokenizer_config.json special_tokens_map.json
added_tokens.json chat_template.jinja chat_template.json model.safetensors model.safetensors.index.json
model-00001-of-00002.safetensors endpoint.yaml serving.properties params.json preprocessor_config.json my_config.json
adapter_config.json adapter_model.safetensors requirements.txt code/inference.py deep/er/config.json tokenizer.model
pytorch_model.bin"""
CODE = "import pathlib\npathlib.Path({marker!r}).write_text('run')\n"


def framed(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


def hostile_json(draw: random.Random, outside: Path) -> bytes:
    values: list[Any] = [
        None,
        True,
        -1,
        2**70,
        1e308,
        "x" * 10_000,
        str(outside / "secret"),
        "../secret",
        [[]] * 50,
        {},
    ]
    document = dict(CONFIG)
    for _ in range(draw.randrange(6)):
        document[
            draw.choice([*CONFIG, "auto_map", "quantization_config", "rope_parameters", "rope_scaling", "text_config"])
        ] = draw.choice(values)
    if draw.random() < 0.3:
        document["auto_map"] = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    if draw.random() < 0.1:
        document["text_config"] = {"trust_remote_code": True, "_attn_implementation": "a/b"}
    text = json.dumps(document).encode()
    return draw.choice(
        [
            text,
            text,
            text,
            text[: draw.randrange(len(text))],
            b"[" * 100_000,
            b"{}",
            b"[]",
            b"\xff\xfe",
            b"[" + b"[]," * 300_000 + b"[]]",
        ]
    )


def settings_file(draw: random.Random, outside: Path) -> bytes:
    places = [
        str(outside / "secret"),
        f"file://{outside}",
        "../outside/secret",
        "s3://elsewhere/x",
        "~/secret",
        "evil/hub",
    ]
    values: list[Any] = [*places, True, 1, "text", {"path": places[0]}, [places[0]], {"a": {"trust_remote_code": True}}]
    keys = [*fields(), "hf_overrides", "additional_config", "speculative_config", "generation_config", "tokenizer"]
    keys += ["worker_cls", "download_dir", "logits_processors", "reasoning_parser_plugin", "allowed_local_media_path"]
    document = {draw.choice(keys): draw.choice(values) for _ in range(draw.randrange(1, 4))}
    if draw.random() < 0.2:
        document = {draw.choice(["max_num_seqs", "max_model_len"]): 4, "chat_template": "chat_template.jinja"}
    return json.dumps(document).encode() if draw.random() < 0.9 else b"a: &a [*a]\n" * 1000


@cache
def hostile_headers() -> list[bytes]:
    return [
        b"[" + b"[]," * (2 * MB),
        b'{"a":[' + b"[]," * (2 * MB) + b"[]]}",
        b"{" + b",".join(b'"%d":{}' % n for n in range(500_000)) + b"}",
        b"{}",
        b"null",
    ]


def hostile_file(name: str, draw: random.Random, outside: Path) -> bytes:
    kind = name.rpartition("/")[2]
    if kind == "endpoint.yaml":
        return settings_file(draw, outside)
    if kind == "serving.properties":
        key = draw.choice(
            ["option.trust_remote_code", "option.model_id", "option.chat_template", "option.worker_cls", "option.dtype"]
        )
        return f"{key}={draw.choice(['true', str(outside / 'secret'), 'bf16', '../x'])}\n".encode()
    if kind.endswith((".safetensors", ".bin")):
        header = draw.choice(hostile_headers())
        size = draw.choice([len(header), 96 * MB, 2**63])
        return draw.choice([framed(header), size.to_bytes(8, "little") + header[:1000], b"", os.urandom(100)])
    if kind.endswith(".jinja"):
        return draw.choice(
            [
                b"{{ 9**(9**(9**9)) }}",
                b"{% for a in range(10**9) %}{% endfor %}",
                b"{{ '%s' }}" % (b"(" * 5000),
                b"{% if %}",
                b"{{ x.__class__.__mro__ }}",
                b"ok" * 200_000,
                b"{% include '/etc/passwd' %}",
                b"",
            ]
        )
    if kind.endswith(".json") and "index" in kind:
        shard = draw.choice(
            ["../outside/secret", str(outside / "secret"), "model.safetensors", "a/b.safetensors", "x" * 5000, 7]
        )
        return json.dumps(
            {"metadata": {"total_size": draw.choice([1, 1e300, -1, "x"])}, "weight_map": {"a": shard}}
        ).encode()
    if kind == "tokenizer.json":
        return draw.choice(
            [b'{"model":{"type":"BPE","vocab":[' + b"[]," * MB + b"[]]}}", b"{}", b"[" * 100_000, b'{"version": "1.0"}']
        )
    if kind.endswith(".py"):
        return CODE.format(marker=str(outside / "marker")).encode()
    return hostile_json(draw, outside)


def fill(directory: Path, draw: random.Random, outside: Path) -> None:
    """Makes one directory: most times a good model with a few hostile files in the place of its own, or beside them."""
    directory.mkdir()
    if draw.random() < 0.8:
        write_small_model(directory)
    (directory / "evil.py").write_text(CODE.format(marker=str(outside / "marker")))
    for _ in range(draw.randrange(1, 4)):
        path = directory / draw.choice(NAMES.split())
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            continue
        path.unlink(missing_ok=True)
        how = draw.random()
        if how < 0.10:
            os.mkfifo(path)
        elif how < 0.25:
            targets: list[str | Path] = [
                outside / "secret",
                "/proc/self/environ",
                "/dev/zero",
                "../outside/secret",
                path.name,
                "nowhere",
                outside,
            ]
            path.symlink_to(draw.choice(targets))
        elif how < 0.28:
            path.mkdir()
        elif how < 0.32:
            path.touch()
            os.truncate(path, 2 << 30)  # sparse
        else:
            path.write_bytes(hostile_file(path.relative_to(directory).as_posix(), draw, outside))


def by_check(model: Path) -> None:
    with_files(examine({}, str(model), instance=None, line=None))


def by_start(model: Path) -> None:
    """What a start with the model at /opt/ml/model does before it imports vLLM."""
    config = load({"SAGEMAKER_BASE_DIR": str(model.parent), "ENDPOINT_CUSTOM_CODE": "false", "HF_HUB_OFFLINE": "1"})
    checked_plan(config)
    if "://" not in config.model and "/" in config.model:
        front_end(config, Path(fetch_model(config).path))


def by_post(model: Path) -> None:
    config = load({"ENDPOINT_CUSTOM_CODE": "false"}, model="/nowhere/else")
    if (path := whole_model(config, str(model))) is not None:
        prepare(config, "one", path)


@contextmanager
def limited(label: str) -> Iterator[None]:
    def hangs(*_: object) -> None:
        raise AssertionError(f"{label} hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.timeout(7200)
def test_a_hostile_directory_is_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    global watching
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    outside, model = tmp_path / "outside", tmp_path / "base" / "model"
    outside.mkdir()
    model.parent.mkdir()
    (outside / "secret").write_text("{{ 'SECRET' }}")
    before, outcomes = peak_bytes(), Counter[str]()
    for case in range(CASES):
        shutil.rmtree(model, ignore_errors=True)
        fill(model, random.Random(f"{SEED} {case}"), outside)
        doors: tuple[Callable[[Path], None], ...] = (by_check, by_start, by_post)
        for door in doors:
            label, message = f"{case} {door.__name__}", ""
            opened[:], watching = [], True
            try:
                with limited(label):
                    door(model)
                outcomes[f"{door.__name__} taken"] += 1
            except EndpointError as error:
                outcomes[f"{door.__name__} refused"] += 1
                message = error.message
            finally:
                watching = False
            real = {
                os.path.realpath(path) for path in opened if not path.startswith("/proc/self/") or "environ" in path
            }
            read = [
                path for path in real if path.startswith(str(outside)) or path in ("/dev/zero",) or "environ" in path
            ]
            assert not read, f"{label} reads {read}"
            assert "SECRET" not in message, label
            assert not (outside / "marker").exists(), f"{label} runs the model's code"
    print(dict(outcomes))
    assert all(after - peak < 500 * MB for after, peak in zip(peak_bytes(), before, strict=True))
