"""A stand-in for Docker's client, not Docker: no daemon, no image, no isolation.

It takes what its documentation ("docker container run", "kill", "rm") says, refuses any other argument as the client
does (status 125), runs the stub container as a plain process with what the arguments give it, and passes signals on to
it. ``stand_in_docker.py DIRECTORY run ...``; the directory keeps every command line, and a file for each container.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

STUB = Path(__file__).with_name("stub_container.py")
IMAGES = ("stub:latest", "stub")


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"docker: {message}", file=sys.stderr)
        sys.exit(125)


def run(directory: Path, words: list[str]) -> int:
    parser = Parser(allow_abbrev=False)
    parser.add_argument("--rm", action="store_true", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--network", choices=["host"], required=True)
    parser.add_argument("--publish", action="append", default=[])
    parser.add_argument("--env-file", required=True)
    parser.add_argument("--mount", action="append", default=[])
    parser.add_argument("--device", action="append", default=[])
    parser.add_argument("--shm-size")
    parser.add_argument("image")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    asked = parser.parse_args(words)
    if asked.image not in IMAGES:
        parser.error(f"unable to find image {asked.image!r}")
    if asked.command != ["serve"]:
        parser.error(f"{asked.command} is not what SageMaker runs an image with")
    given = dict(line.split("=", 1) for line in Path(asked.env_file).read_text().splitlines())
    container = directory / asked.name
    opt_ml = container.with_suffix(".opt-ml")
    opt_ml.mkdir()
    for mount in asked.mount:
        fields = next(csv.reader([mount]))
        values = dict(field.partition("=")[::2] for field in fields)
        if (
            values.pop("readonly", None) is None
            or values.pop("type") != "bind"
            or values.keys() != {"source", "target"}
        ):
            parser.error(f"{mount} is no read-only bind mount")
        if not Path(values["source"]).is_dir():
            parser.error(f"bind source path does not exist: {values['source']}")
        if values["target"].startswith("/opt/ml/"):
            (opt_ml / Path(values["target"]).name).symlink_to(values["source"])
    environment = {"PATH": os.environ["PATH"], **given, "SAGEMAKER_BASE_DIR": str(opt_ml)}
    process = subprocess.Popen([sys.executable, str(STUB), "serve"], env=environment)
    container.write_text(str(process.pid))
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGTERM))
    status = process.wait()
    container.unlink(missing_ok=True)
    return status if status >= 0 else 128 - status


def end(directory: Path, name: str) -> int:
    try:
        os.kill(int((directory / name).read_text()), signal.SIGKILL)
    except (FileNotFoundError, ProcessLookupError):
        print(f"Error: No such container: {name}", file=sys.stderr)
        return 1
    return 0


def main(directory: Path, verb: str, words: list[str]) -> int:
    with (directory / "commands.jsonl").open("a") as file:
        file.write(json.dumps([verb, *words]) + "\n")
    if verb == "run":
        return run(directory, words)
    if verb == "kill" and len(words) == 1:
        return end(directory, words[0])
    if verb == "rm" and words[:1] == ["--force"] and len(words) == 2:
        end(directory, words[1])
        (directory / words[1]).unlink(missing_ok=True)
        return 0
    return 125


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
