"""`make image`: builds an image, and prints the size of each layer."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import click

from image import image_client, stand_in_base
from image.image_client import ImageClient, ImageError, Unavailable

# Dockerfile and the Python of its base, by the engine of the image.
FILES = {"cpu": ("Dockerfile.cpu", "3.11"), "neuron": ("Dockerfile", "3.12")}


@click.command()
@click.argument("engine", type=click.Choice(sorted(FILES)), default="cpu")
@click.option("--tag", help="The name of the image; neuron-endpoint:ENGINE unless given.")
@click.option("--base", help="The base image, or `stand-in`: a base of Debian packages, made here.")
@click.option("--python", help="The Python of a stand-in base.")
@click.option("--optional", is_flag=True, help="Exit with 0 where no client is installed or no base can be made.")
@click.option("--no-cache", is_flag=True, help="Build every layer again.")
@click.option(
    "--oci", is_flag=True, help="OCI's format (podman, buildah): any two builds have one id; no health check."
)
def main(
    engine: str, tag: str | None, base: str | None, python: str | None, optional: bool, no_cache: bool, oci: bool
) -> None:
    """Build the image of an ENGINE: `cpu` or `neuron`."""
    file, own_python = FILES[engine]
    try:
        client = image_client.find()
        if oci and client.name == "docker":
            raise click.UsageError("docker builds no OCI format: use podman or buildah (IMAGE_CLIENT)")
        begun = time.monotonic()
        if base == "stand-in":
            base = stand_in_base.make(client, engine, python or own_python)
            click.echo(f"The base is a stand-in, {base}: Debian, not the base of {file}.")
        arguments = {"BASE_IMAGE": base} if base else {}
        name = tag or f"neuron-endpoint:{engine}"
        options = [*(["--no-cache"] if no_cache else []), *(["--format=oci"] if oci else [])]
        identity = client.build(Path(file), name, arguments, *options)
        click.echo(f"{name} {identity}, {time.monotonic() - begun:.1f} s by {client.name}")
        for size, made_by in layers(client, name):
            click.echo(f"{size / 1e6:9.1f} MB  {made_by[:110]}")
    except ImageError as error:
        if optional and isinstance(error, Unavailable):
            click.echo(f"No image is built or tested here: {error}.")
            return
        sys.exit(f"image: {error}.")


def layers(client: ImageClient, name: str) -> list[tuple[int, str]]:
    """The size in bytes of each layer that has one, from the base upwards, and the instruction that made it."""
    if client.name == "buildah":
        return []  # It does not tell.
    if client.name == "podman":
        history = json.loads(client.output("history", "--format", "json", name))
        return [(each["size"], each["CreatedBy"]) for each in reversed(history) if each["size"]]
    lines = client.output("history", "--no-trunc", "--human=false", "--format", "{{.Size}}\t{{.CreatedBy}}", name)
    sizes = [line.partition("\t") for line in reversed(lines.splitlines())]
    return [(int(size), made_by) for size, _, made_by in sizes if int(size)]


if __name__ == "__main__":
    main()
