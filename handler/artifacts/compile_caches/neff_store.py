"""The layouts of the compilers' caches, and their modules in an object store.

Each graph has a directory, in which a marker file shows that it is finished. neuronx-cc writes
`neuronxcc-<version>/MODULE_<graph>+<flags>/` (AWS Neuron SDK documentation, "Neuron Persistent Cache"), the native
plugin `neuron/compile_cache/<md5>/` below VLLM_CACHE_ROOT (aws-neuron/aws-neuron-sdk#1371 and #1368). In the store:

    neff/modules/<layout>-<version>/<module>.json    a module's files and their digests; written last, once
    neff/objects/<digest>                            the content of the files

These objects are separate from the entries' objects, and garbage collection ignores them. A lifecycle rule for `neff/`
may delete them by age, in any order: incomplete modules are skipped. With a signing key, only modules signed with it
are downloaded.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from blake3 import blake3

from handler.artifacts.store.manifest import FileEntry
from handler.artifacts.store.manifest_signature import Signature, Signer
from handler.storage.object_store import ObjectStore, size_of
from handler.storage.storage_errors import (
    Conflict,
    DigestMismatch,
    InvalidManifest,
    NotFound,
    SignatureRefused,
    TooLarge,
)


@dataclass(frozen=True, slots=True)
class CacheLayout:
    """One directory layout.

    :param name: the prefix of its modules in a store, before the version.
    :param folder: the directory of one version's modules, below the root; `*` stands for the version.
    :param module: pattern of the name of a module's directory.
    :param neff: glob of the compiled graph in it.
    :param done: the marker file of a finished module.
    :param log: the file that a failed compile leaves. The compiler does not try again while it exists.
    :param excluded: files that are not saved to the store.
    """

    name: str
    folder: str
    module: re.Pattern[str]
    neff: str
    done: str
    log: str | None
    excluded: re.Pattern[str]

    def directory(self, root: Path, version: str) -> Path:
        return root / self.folder.replace("*", version)

    def version(self, module: Path, known: str | None) -> str | None:
        """Returns the compiler version of a module: from its folder's name, or else `known`."""
        prefix, star, _ = Path(self.folder).name.partition("*")
        return module.parent.name.removeprefix(prefix) if star else known


NEURONX_CC = CacheLayout(
    name="neuronxcc",
    folder="neuronxcc-*",
    module=re.compile(r"MODULE_\w+\+\w+"),
    neff="model.neff",
    done="model.done",
    log="model.log",
    excluded=re.compile(r".*\.lock|model\.log"),
)
NATIVE = CacheLayout(
    name="native",
    folder="neuron/compile_cache",
    module=re.compile(r"[0-9a-f]{8,64}"),
    neff="*.neff",
    done=".compilation_complete",
    log=None,
    excluded=re.compile(r".*\.lock|.*\.log|log-neuron-cc\.txt"),
)


COMPILER = re.compile(r"[\w.+-]+")
LARGEST = 64 * 1024
SCHEMA = 1


class _File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^(?!\.{1,2}\Z)[\w.-]{1,200}\Z")]
    size: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    digest: Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]


class StoredModule(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One module in the store, as its list of files is written there."""

    neff_schema: int
    compiler: str
    module: str
    files: tuple[_File, ...]

    @property
    def size(self) -> int:
        """The size of all files together, in bytes."""
        return sum(file.size for file in self.files)


class _Envelope(msgspec.Struct, forbid_unknown_fields=True):
    module: msgspec.Raw
    signature: Signature | None = None


# Made at import: msgspec inspects a type when it first meets it, and ends the process with a segmentation fault if two
# threads do so at the same time (msgspec 0.22.0). Modules are read by several threads.
_ENVELOPES = msgspec.json.Decoder(_Envelope)
_MODULES = msgspec.json.Decoder(StoredModule)


class NeffStore:
    """The modules in one store.

    :param signer: if given, modules are signed when they are saved, and rejected unless they are signed with its key.
    :param layout: the layout of the compiler's cache.
    """

    def __init__(self, objects: ObjectStore, signer: Signer | None = None, layout: CacheLayout = NEURONX_CC) -> None:
        self._objects, self._signer, self.layout = objects, signer, layout

    def names(self, compiler: str) -> list[str]:
        """Returns the names of the modules of one compiler version, the newest first."""
        prefix = self._prefix(compiler)
        listed = sorted(self._objects.list(prefix), key=lambda info: info.modified, reverse=True)
        names = [info.key.removeprefix(prefix).removesuffix(".json") for info in listed]
        return [name for name in names if self.layout.module.fullmatch(name)]

    def read(self, compiler: str, name: str) -> StoredModule:
        """Reads the list of a module's files.

        :raises InvalidManifest: the list is broken.
        :raises SignatureRefused: it is not signed with the configured key.
        """
        where = self._objects.location(self._name(compiler, name)).uri
        body, _ = self._objects.get(self._name(compiler, name), limit=LARGEST)
        try:
            envelope = _ENVELOPES.decode(body)
            if self._signer is not None:
                self._signer.check(bytes(envelope.module), envelope.signature, where)
            module = _MODULES.decode(envelope.module)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidManifest(where, str(error)[:120]) from None
        if (module.neff_schema, module.compiler, module.module) != (SCHEMA, compiler, name):
            raise InvalidManifest(where, "it belongs to another module or schema")
        return module

    def bring(self, module: StoredModule, directory: Path) -> None:
        """Downloads a module to `directory/<module>` and checks its digests. It appears complete or not at all.

        :raises DigestMismatch: the content is not what was saved.
        :raises NotFound: a file is missing.
        """
        fresh = Path(tempfile.mkdtemp(prefix=".bring-", dir=directory))
        try:
            for file in module.files:
                self._fetch(file, fresh / file.name)
            fresh.chmod(0o755)
            fresh.rename(directory / module.module)
        finally:
            shutil.rmtree(fresh, ignore_errors=True)

    def save(self, compiler: str, directory: Path, *, replace: bool = False) -> bool:
        """Uploads a finished module. Returns False if the store already has it.

        A module that cannot be read, or lacks a file, is replaced.

        :param replace: replace a module that looks complete as well, because its content is damaged.
        """
        name = self._name(compiler, directory.name)
        try:
            etag = self._objects.head(name).etag
        except NotFound:
            etag = None
        if etag and not replace and self._complete(compiler, directory.name):
            return False
        files = []
        for path in sorted(directory.iterdir()):
            if path.is_file() and not path.is_symlink() and not self.layout.excluded.fullmatch(path.name):
                entry = FileEntry.of_file(path, path.name)
                self._objects.upload(_object(entry.digest), path)
                files.append(_File(entry.path, entry.size, entry.digest))
        body = msgspec.json.encode(StoredModule(SCHEMA, compiler, directory.name, tuple(files)))
        signature = self._signer.sign(body) if self._signer is not None else None
        try:
            envelope = msgspec.json.encode(_Envelope(msgspec.Raw(body), signature))
            self._objects.put(name, envelope, if_absent=etag is None, if_match=etag)
        except Conflict:
            return False
        return True

    def _complete(self, compiler: str, name: str) -> bool:
        """Whether a module can be read, and each of its files is there in its size."""
        try:
            module = self.read(compiler, name)
        except (NotFound, InvalidManifest, SignatureRefused, TooLarge):
            return False
        return all(size_of(self._objects, _object(file.digest)) == file.size for file in module.files)

    def _fetch(self, file: _File, path: Path) -> None:
        digest, size = blake3(), 0
        with open(path, "xb") as target:
            for chunk in self._objects.read(_object(file.digest)):
                size += len(chunk)
                if size > file.size:
                    break
                digest.update(chunk)
                target.write(chunk)
        if size != file.size or digest.hexdigest() != file.digest:
            raise DigestMismatch(self._objects.location(_object(file.digest)).uri, file.digest, digest.hexdigest())

    def _prefix(self, compiler: str) -> str:
        if not COMPILER.fullmatch(compiler):
            raise ValueError(f"{compiler[:80]!r} is not a version")
        return f"neff/modules/{self.layout.name}-{compiler}/"

    def _name(self, compiler: str, module: str) -> str:
        return f"{self._prefix(compiler)}{module}.json"


def _object(digest: str) -> str:
    return f"neff/objects/{digest}"
