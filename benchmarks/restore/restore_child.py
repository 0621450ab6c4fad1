"""Runs one download in a process: `python -m benchmarks.restore.restore_child restore|fetch|boto3 TARGET THREADS`.

Prints its duration in seconds, without the start of Python and the imports of this program's own modules.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.restore.restore_data import BUCKET, ENTRY, KEY, KINDS, STORE
from handler.artifacts.restore.restore import RestoreOptions, restore, source_of
from handler.artifacts.store.artifact_store import ArtifactStore
from handler.storage.s3_download import download_prefix


def with_restore(target: Path, threads: int) -> None:
    """Restores as a start does: reads the manifests from the store, checks digests, and renames the directory."""
    store = ArtifactStore.open(f"s3://{BUCKET}/{STORE}")
    manifests = [manifest for kind in KINDS if (manifest := store.find(KEY, kind))]
    assert len(manifests) == len(KINDS)
    restore(manifests, source_of(store), target, options=RestoreOptions(threads=threads))


def with_fetch(target: Path, threads: int) -> None:
    """Fetches the files as a start fetches a model. The number of connections is this machine's."""
    download_prefix(f"s3://{BUCKET}/{ENTRY}", target, "ENDPOINT_MODEL", lambda done, total: None)


def with_boto3(target: Path, threads: int) -> None:
    """Downloads with `download_file` and its defaults (ten threads for a large object), several objects at a time."""
    import boto3

    client = boto3.client("s3")
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{ENTRY}/")
    keys = [item["Key"] for page in pages for item in page["Contents"]]

    def download(key: str) -> None:
        path = target / key.removeprefix(f"{ENTRY}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        client.download_file(BUCKET, key, str(path))

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(download, keys))


if __name__ == "__main__":
    began = time.perf_counter()
    ways = {"restore": with_restore, "fetch": with_fetch, "boto3": with_boto3}
    ways[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))
    print(time.perf_counter() - began)
