"""Replaces torch's CUDA libraries by stubs of a few kB, so that its CUDA build loads without NVIDIA's packages.

PyPI's torch for Linux is the CUDA build. Its Python module links ``libtorch_cuda.so`` (1 GB), and that links cuBLAS,
cuDNN, NCCL and others (4 GB). The CPU engine calls none of them, but the dynamic linker wants their symbols. A stub
defines the symbols that the remaining libraries import, with no work behind them. The libraries that ask a
driver (libc10_cuda, libcudart, libcupti, libcufile) stay and answer that there is none.

``python cuda_stubs.py [DIRECTORY]`` changes the packages in the directory, or this Python's own. It needs gcc and
binutils. It does nothing for torch's CPU build.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

REMOVED = ("libtorch_cuda.so", "libtorch_cuda_linalg.so", "libtorch_nvshmem.so", "libcaffe2_nvrtc.so")
# Libraries of NVIDIA's packages that torch's own libraries link: name, and the version of its symbols.
STUBBED = {"libcudnn.so.9": "libcudnn.so.9", "libcusparseLt.so.0": ""}


def symbols(library: Path, kind: str) -> Iterator[tuple[str, str]]:
    """The (name, version) of each dynamic symbol. ``kind`` is an option of nm."""
    done = subprocess.run(["nm", "-D", kind, "--format=posix", library], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        name, _, version = line.split()[0].replace("@@", "@").partition("@")
        yield name, version


def definition(name: str) -> str:
    """A symbol in assembler. C++ names the type information of a class _ZTI..., and its table of methods _ZTV..."""
    if name.startswith("_ZTI"):
        table = "_ZTVN10__cxxabiv117__class_type_infoE"
        return f'.data\n.balign 8\n.globl "{name}"\n"{name}":\n.quad {table} + 16, 1f\n1: .asciz "{name[4:]}"\n'
    if name.startswith("_ZTV"):
        return f'.data\n.balign 8\n.globl "{name}"\n"{name}":\n.zero 1024\n'
    return f'.text\n.globl "{name}"\n.type "{name}", @function\n"{name}": lea zeros(%rip), %rax\nret\n'


def build(library: Path, names: set[str], version: str) -> None:
    """Writes a library whose functions return the address of zeros: false as a bool, empty as a reference."""
    with tempfile.TemporaryDirectory() as directory:
        source, script = Path(directory, "stub.s"), Path(directory, "versions")
        zeros = ".bss\n.balign 4096\nzeros: .zero 4096\n"
        end = '.section .note.GNU-stack,"",@progbits\n'
        source.write_text("".join(map(definition, sorted(names))) + zeros + end)
        script.write_text(f"{version} {{ global: *; }};\n")
        options = ["-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{library.name}"]
        if version:
            options.append(f"-Wl,--version-script={script}")
        subprocess.run(["gcc", *options, "-o", library, source], check=True)


def main(packages: Path) -> int:
    libraries = packages / "torch" / "lib"
    whole = libraries / "libtorch_cuda.so"
    if not whole.exists():
        print("torch is the CPU build.")
        return 0
    there = [libraries / name for name in REMOVED if (libraries / name).exists()]
    given = {name for library in there for name, _ in symbols(library, "--defined-only")}
    for name in REMOVED:
        (libraries / name).unlink(missing_ok=True)
    wanted = {symbol for library in libraries.glob("*.so") for symbol in symbols(library, "--undefined-only")}
    build(whole, {name for name, _ in wanted} & given, "")
    for name, version in STUBBED.items():
        build(libraries / name, {symbol for symbol, of in wanted if version and of == version}, version)
    print(f"Stubs replace {', '.join((*REMOVED[:1], *STUBBED))}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(*sys.argv[1:] or (sysconfig.get_path("purelib"),))))
