"""Finds the program that builds and runs images: docker, podman or buildah."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from image.pip_sources import volumes

NAMES = ("docker", "podman", "buildah")
MOST = 20_000  # Of processes and of file descriptors, where a limit must be named.
SYS_RESOURCE = 24  # The number of CAP_SYS_RESOURCE: linux/capability.h.
# The time of every file and of the image, so that two builds give one image: 1980-01-01, the first that zip knows.
TIMESTAMP = 315532800


class ImageError(Exception):
    """An image cannot be built or run here. The message says why."""


class Unavailable(ImageError):
    """This machine lacks what an image needs: a client, or the means to make a base."""


@dataclass(frozen=True, slots=True)
class ImageClient:
    """A client and its options on this machine.

    :ivar command: the program, with options that apply to each of its commands.
    :ivar build_options: further options of ``build``.
    :ivar run_options: further options of ``run``.
    """

    name: str
    command: tuple[str, ...]
    build_options: tuple[str, ...] = ()
    run_options: tuple[str, ...] = ()

    def output(self, *words: str) -> str:
        """Runs a command and returns its standard output.

        :raises ImageError: it failed.
        """
        done = subprocess.run([*self.command, *words], capture_output=True, text=True, check=False)
        if done.returncode:
            raise ImageError(f"{self.name} {words[0]} failed: {done.stderr.strip()[-2000:]}")
        return done.stdout.strip()

    def build(self, file: Path, tag: str, arguments: Mapping[str, str], *options: str) -> str:
        """Builds an image and returns its id. The client's output goes to the terminal.

        :raises ImageError: the build failed.
        """
        given = [word for name, value in arguments.items() for word in ("--build-arg", f"{name}={value}")]
        command = [
            *self.command,
            "build",
            *self.build_options,
            *given,
            *options,
            "--file",
            str(file),
            "--tag",
            tag,
            ".",
        ]
        if subprocess.run(command, check=False).returncode:
            raise ImageError(f"{self.name} could not build {tag} from {file}")
        return self.image_id(tag)

    def image_id(self, tag: str) -> str:
        return self.output(
            "inspect", "--type", "image", "--format", "{{.FromImageID}}" if self.name == "buildah" else "{{.Id}}", tag
        )


def find(environ: Mapping[str, str] = os.environ) -> ImageClient:
    """Returns the first client that is installed.

    IMAGE_CLIENT names another one, and IMAGE_STORAGE a directory for its images.

    :raises Unavailable: none is installed.
    """
    wanted = environ.get("IMAGE_CLIENT")
    name = next((each for each in NAMES if wanted in (None, "", each) and usable(each)), None)
    if name is None:
        raise Unavailable(f"{wanted or 'docker, podman or buildah'} is needed and not installed")
    if name == "docker":
        return ImageClient(name, (name,), ("--build-arg", f"SOURCE_DATE_EPOCH={TIMESTAMP}"))
    storage = environ.get("IMAGE_STORAGE")
    places = ("--root", f"{storage}/images", "--runroot", f"{storage}/run") if storage else ()
    # OCI's format has no health check.
    build = ("--format=docker", "--layers", f"--timestamp={TIMESTAMP}", "--network=host", *volumes())
    if not restricted():
        return ImageClient(name, (name, *places), build, without_health_check(name))
    # Without the capability no program may raise a limit, as podman's default runtime does. No limit can be left out.
    kinds = {"nofile": resource.RLIMIT_NOFILE, "nproc": resource.RLIMIT_NPROC}
    limits = {kind: min(resource.getrlimit(number)[1] & sys.maxsize, MOST) for kind, number in kinds.items()}
    run = tuple(f"--ulimit={kind}={limit}:{limit}" for kind, limit in limits.items())
    if name == "podman" and shutil.which("runc"):
        places = (*places, "--runtime=runc")
    return ImageClient(name, (name, *places), (*build, "--isolation=chroot"), (*run, *without_health_check(name)))


def without_health_check(name: str) -> tuple[str, ...]:
    """Podman runs a health check by systemd's timers."""
    return ("--no-healthcheck",) if name == "podman" and not Path("/run/systemd/system").exists() else ()


def usable(name: str) -> bool:
    """Whether the program is installed. Docker also needs its daemon."""
    if shutil.which(name) is None:
        return False
    return name != "docker" or subprocess.run([name, "info"], capture_output=True, check=False).returncode == 0


def restricted() -> bool:
    """Whether this process lacks the right to raise its limits, as in many virtual machines and containers."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return not int(line.split()[1], 16) >> SYS_RESOURCE & 1
    return False
