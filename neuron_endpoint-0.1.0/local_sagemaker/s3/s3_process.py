"""``python -m local_sagemaker.s3.s3_process PORT DIRECTORY``: runs moto's server with S3 objects stored in files."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

from local_sagemaker.parent import end_with_parent
from local_sagemaker.s3.local_only import LocalOnly
from local_sagemaker.s3.stored_objects import KeptObjects
from local_sagemaker.s3.write_through import WriteThrough

HOST = "127.0.0.1"


def main(port: int, directory: Path) -> None:
    end_with_parent(signal.SIGTERM)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # Everything is written already.
    os.environ["MOTO_PORT"] = str(port)
    app = WriteThrough(DomainDispatcherApplication(create_backend_app), KeptObjects(directory), f"{HOST}:{port}")
    app.load()
    guarded = LocalOnly(app, {f"{HOST}:{port}", f"localhost:{port}"})
    run_simple(HOST, port, guarded, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
