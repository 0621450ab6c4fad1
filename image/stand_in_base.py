"""Makes a base image of Debian packages with a Python, where the registry of the real base cannot be reached.

It is named for what it is: an image over it shows that the Dockerfile builds and what it makes runs, not what the real
base has. mmdebstrap (a Debian package) makes it in a minute.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from image.image_client import TIMESTAMP, ImageClient, ImageError, Unavailable

# Debian's release with each Python. Python 3.12 is in none: it is copied from this machine.
RELEASES = {"3.11": "bookworm", "3.13": "trixie"}
COPIED_RELEASE = "bookworm"
SHARED_LIBRARIES = "libssl3,libffi8,libsqlite3-0,libbz2-1.0,liblzma5,zlib1g,libreadline8,libncursesw6,libexpat1"

# What a build over a base must be able to do: run its Python, and have a package of the lock.
TRIAL = "python -m pip download --quiet --no-deps --no-cache-dir --dest /tmp/trial blinker"
# What the CPU's Dockerfile installs itself, and vLLM's CPU build needs where it takes the place of Neuron's.
ENGINE_LIBRARIES = {"cpu": "", "neuron": ",libgomp1,libnuma1"}


def make(client: ImageClient, engine: str, python: str) -> str:
    """Makes the base of an engine's image unless it is there, and returns its tag.

    :raises Unavailable: mmdebstrap is missing or fails, or no such Python can be had.
    """
    name = f"localhost/neuron-endpoint-stand-in-base:{engine}-python{python}"
    try:
        client.image_id(name)
    except ImageError:
        if shutil.which("mmdebstrap") is None:
            raise Unavailable("mmdebstrap (a Debian package) is needed for a stand-in base") from None
        with tempfile.TemporaryDirectory() as directory:
            archive = Path(directory, "base.tar")
            command = [*debian(python, ENGINE_LIBRARIES[engine]), str(archive)]
            environment = {"SOURCE_DATE_EPOCH": str(TIMESTAMP), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                raise Unavailable(f"mmdebstrap failed: {done.stderr.strip()[-1000:]}") from None
            place = Path(directory)
            (place / "Dockerfile").write_text("FROM scratch\nADD base.tar /\n")
            (place / "Trial").write_text(f"FROM {name}\nRUN {TRIAL}\n")
            for file, more in (("Dockerfile", ("--tag", name)), ("Trial", ())):
                command = [
                    *client.command,
                    "build",
                    *client.build_options,
                    "--file",
                    str(place / file),
                    *more,
                    directory,
                ]
                if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
                    if file == "Trial":  # The next run must not take it for a base that works.
                        subprocess.run([*client.command, "rmi", name], stdout=subprocess.DEVNULL, check=False)
                    raise Unavailable(f"{client.name} can build no image here ({file} of the stand-in base)") from None
    return name


def debian(python: str, more: str) -> list[str]:
    """The command that makes a root file system, without its last argument, the archive."""
    quiet = ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root"]
    if python in RELEASES:
        packages = "ca-certificates,passwd,python3,python3-pip,python3-venv,python-is-python3"
        return [*quiet, f"--include={packages}{more}", RELEASES[python]]
    program = shutil.which(f"python{python}")
    if program is None:
        raise Unavailable(f"Debian has no Python {python}, and neither has this machine")
    asked = [program, "-c", "import sys; print(sys.base_prefix)"]
    environment = {**os.environ, "PYENV_VERSION": python}  # Without it, pyenv's program of that name finds none.
    prefix = subprocess.run(asked, env=environment, capture_output=True, text=True, check=False).stdout.strip()
    if not prefix or prefix == "/usr":
        raise Unavailable(f"the Python {python} of this machine cannot be copied")
    return [
        *quiet,
        f"--include=ca-certificates,passwd,{SHARED_LIBRARIES}{more}",
        f'--customize-hook=cp -a "{prefix}/." "$1/usr/local/"',
        f'--customize-hook=ln -sf python{python} "$1/usr/local/bin/python"',
        '--customize-hook=chroot "$1" ldconfig',  # It may be linked with a library of its own.
        '--customize-hook=find "$1/usr/local" -name __pycache__ -prune -exec rm -r {} +',
        COPIED_RELEASE,
    ]
