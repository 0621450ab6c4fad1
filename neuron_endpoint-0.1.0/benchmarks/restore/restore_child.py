"""Runs one download in a process: `python -m benchmarks.restore.restore_child WAY PREFIX TARGET THREADS`.

Prints its duration in seconds, without the start of Python and the imports of this program's own modules.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

from benchmarks.restore.model_data import TENSOR_SIZE, TENSORS
from benchmarks.restore.restore_data import BUCKET, KEY, KINDS, STORE
from handler.artifacts.restore.restore import RestoreOptions, restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.storage.s3_download import download_prefix


def with_restore(prefix: str, target: Path, threads: int) -> None:
    """Restores as a start does: reads the manifests from the store, checks digests, and renames the directory."""
    store = ArtifactStore.open(f"s3://{BUCKET}/{STORE}")
    manifests = [manifest for kind in KINDS if (manifest := store.find(KEY, kind))]
    assert len(manifests) == len(KINDS)
    restore(manifests, source_of(store), target, options=RestoreOptions(threads=threads))


def with_fetch(prefix: str, target: Path, threads: int) -> None:
    """Fetches the files as a start fetches a model. The number of connections is this machine's."""
    download_prefix(f"s3://{BUCKET}/{prefix}", target, "ENDPOINT_MODEL", lambda done, total: None)


def with_boto3(prefix: str, target: Path, threads: int) -> None:
    """Downloads with `download_file` and its defaults (ten threads for a large object), several objects at a time."""
    import boto3

    client = boto3.client("s3")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/")
    keys = [item["Key"] for page in pages for item in page["Contents"]]

    def download(key: str) -> None:
        path = target / key.removeprefix(f"{prefix}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(BUCKET, key, str(path))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(download, keys))


def with_runai(prefix: str, target: Path, threads: int) -> None:
    """Streams the tensors into memory as vLLM's `--load-format runai_streamer` does, and downloads the other files.

    :raises ValueError: the tensors have fewer bytes than their files announce.
    """
    from runai_model_streamer import SafetensorsStreamer, list_safetensors, pull_files

    uri = f"s3://{BUCKET}/{prefix}/"
    pull_files(uri, str(target), None, ["*.safetensors"])
    files = list_safetensors(uri)
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(files)
        arrived = sum(tensor.nbytes for _, tensor in streamer.get_tensors())
    if arrived != len(files) * TENSORS * TENSOR_SIZE:
        raise ValueError(f"{len(files)} files had {arrived:,} bytes of tensors")


WAYS = {"restore": with_restore, "fetch": with_fetch, "boto3": with_boto3, "runai": with_runai}
# What a start has imported before: the checks read the model's config.json from S3, and an engine imports torch.
IMPORTED = {"fetch": "boto3", "boto3": "boto3", "runai": "runai_model_streamer"}

if __name__ == "__main__":
    if sys.argv[1] in IMPORTED:
        import_module(IMPORTED[sys.argv[1]])
    began = time.perf_counter()
    WAYS[sys.argv[1]](sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
    print(time.perf_counter() - began)
