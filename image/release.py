"""Makes a release: source distribution, wheel, notes and images, all of the version in pyproject.toml.

``python -m image.release --dry-run`` makes the files and prints the commands that it would run for the images.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click

ROOT = Path(__file__).parents[1]
# The tags of the Neuron bases stand in the Dockerfile's first lines.
BASE_TAG = re.compile(r"^#   (\S+-neuronx-\S+)", re.MULTILINE)
DEFAULT_BASE = re.compile(r"^ARG BASE_IMAGE=(.+):[^:]+$", re.MULTILINE)


def version() -> str:
    stated: str = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    return stated


def notes(changelog: str, release: str) -> str:
    """The section of a version.

    :raises click.ClickException: there is none.
    """
    found = re.search(rf"^## {re.escape(release)}\b.*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    if found is None or not found[1].strip():
        raise click.ClickException(f"CHANGELOG.md has no section for {release}. Write it first.")
    return found[1].strip() + "\n"


def image_commands(release: str) -> list[list[str]]:
    """The commands that build the image of the CPU and of each Neuron line."""
    dockerfile = (ROOT / "Dockerfile").read_text()
    (repository,) = DEFAULT_BASE.findall(dockerfile)
    build = [sys.executable, "-m", "image"]
    commands = [[*build, "cpu", "--tag", f"neuron-endpoint:{release}-cpu"]]
    for tag in BASE_TAG.findall(dockerfile):
        names = ["--tag", f"neuron-endpoint:{release}-{tag}", "--base", f"{repository}:{tag}"]
        commands.append([*build, "neuron", *names])
    return commands


@click.command()
@click.option("--dry-run", is_flag=True, help="Make the files, and print the commands for the images and the git tag.")
@click.option("--out", type=click.Path(path_type=Path), default=Path("build", "release"), show_default=True)
def main(dry_run: bool, out: Path) -> None:
    """Make the files, the images and the git tag of a release."""
    release = version()
    text = notes((ROOT / "CHANGELOG.md").read_text(), release)
    out.mkdir(parents=True, exist_ok=True)
    (out / "notes.md").write_text(text)
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "build", "--quiet", "--out-dir", out, ROOT], check=True)
    click.echo("\n".join(f"{path}" for path in sorted(out.iterdir()) if not path.name.startswith(".")))
    for command in [
        *image_commands(release),
        ["git", "tag", "--annotate", f"v{release}", "--file", f"{out / 'notes.md'}"],
    ]:
        click.echo(shlex.join(command))
        if not dry_run:
            subprocess.run(command, cwd=ROOT, check=True)


if __name__ == "__main__":
    main()
