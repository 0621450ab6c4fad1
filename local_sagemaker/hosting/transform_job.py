"""Runs one transform job: starts its container, sends every payload to it, writes one object for each input."""

from __future__ import annotations

import gzip
import http.client
import json
import logging
import threading
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

from local_sagemaker.hosting.component import call
from local_sagemaker.hosting.fleets import Deployment, Document, Fleets
from local_sagemaker.hosting.instances.instance import Instance
from local_sagemaker.hosting.instances.instance_pool import Cancelled, InstanceStartFailed, Pool
from local_sagemaker.hosting.instances.s3_access import ObjectError, Objects, S3Location

log = logging.getLogger(__name__)

VARIANT = "transform"
MEGABYTE = 1024 * 1024
LARGEST_OBJECT = 1024**3
MAX_PAYLOAD_MB = 6
TIMEOUT_SECONDS = 600.0
MAX_RETRIES = 3
# Seconds before another try, doubled each time. No source says how long SageMaker waits.
PAUSE = 2.0
LONGEST_REASON = 300
ENDED_WITHIN = 60.0
# The guide's spelling for and of a container ("Custom inference code with batch transform"), and CreateTransformJob's.
STRATEGIES = {"SINGLE_RECORD": "SingleRecord", "MULTI_RECORD": "MultiRecord"}
OF_CONTAINER = {member: spelling for spelling, member in STRATEGIES.items()}
VARIABLES = {
    "SAGEMAKER_MAX_PAYLOAD_IN_MB": "MaxPayloadInMB",
    "SAGEMAKER_BATCH_STRATEGY": "BatchStrategy",
    "SAGEMAKER_MAX_CONCURRENT_TRANSFORMS": "MaxConcurrentTransforms",
}


class JobFailed(Exception):
    """The job failed. The message is its FailureReason."""


class TransformJob:
    """One transform job.

    :param finish: called once with the final status and its reason.
    """

    def __init__(
        self, params: Document, container: Document, fleets: Fleets, objects: Objects, finish: Callable[..., None]
    ) -> None:
        self._params = params
        self._container = container
        self._fleets = fleets
        self._objects = objects
        self._finish = finish
        self._stopped = threading.Event()
        self._deployment: Deployment | None = None
        self._changed = threading.Condition(threading.RLock())
        self._thread = threading.Thread(target=self._run, daemon=True, name=params["TransformJobName"])

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the container, too: a reply to a payload may take as long as InvocationsTimeoutInSeconds."""
        self._stopped.set()
        with self._changed:
            if self._deployment is not None:
                self._deployment.stop()
            self._changed.notify_all()

    def wait(self, seconds: float) -> None:
        self._thread.join(seconds)

    def _run(self) -> None:
        status, reason = "Completed", None
        try:
            self._deployment = self._planned()
            name = f"transform-{self._params['TransformJobName']}"
            self._fleets.start(name, self._deployment, self._changed, self._stopped.is_set)
            self._transform(self._deployment)
        except Cancelled:
            status = "Stopped"
        except Exception as error:
            if self._stopped.is_set():
                status = "Stopped"
            elif isinstance(error, (JobFailed, InstanceStartFailed, ObjectError)):
                status, reason = "Failed", str(error)
            else:
                log.exception("the transform job %s failed", self._params["TransformJobName"])
                status, reason = "Failed", "The service failed. Its log has the reason."
        finally:
            if self._deployment is not None:
                self._deployment.stop()
            self._finish(status, reason)
            if self._deployment is not None:
                for pool in self._deployment.pools():
                    pool.wait_ended(ENDED_WITHIN)

    def _planned(self) -> Deployment:
        resources = self._params["TransformResources"]
        container = {**self._container, "Environment": {**self._container.get("Environment", {}), **self._batch()}}
        planned = {
            "VariantName": VARIANT,
            "Weight": 1.0,
            "Count": resources["InstanceCount"],
            "Container": container,
        }
        return Deployment({"Variants": [planned]})

    def _batch(self) -> dict[str, str]:
        """Returns the container's environment: the job's own, and the variables that describe the job."""
        variables = {"SAGEMAKER_BATCH": "true", **self._params.get("Environment", {})}
        spelled = {**self._params, "BatchStrategy": OF_CONTAINER.get(self._params.get("BatchStrategy", ""))}
        for variable, member in VARIABLES.items():
            if (value := spelled.get(member)) is not None:
                variables[variable] = str(value)
        return variables

    def _transform(self, deployment: Deployment) -> None:
        pool = deployment.variants[VARIANT].pool
        assert pool is not None
        parameters = execution_parameters(pool.instances()[0])
        # 0 leaves the first to the container, and makes the second chunked bodies of any size (the API reference).
        concurrent = int(self._params.get("MaxConcurrentTransforms") or parameters.get("MaxConcurrentTransforms") or 1)
        most = int({"MaxPayloadInMB": MAX_PAYLOAD_MB, **parameters, **self._params}["MaxPayloadInMB"])
        strategy = self._params.get("BatchStrategy") or strategy_of(parameters)
        failures: list[Exception] = []
        with ThreadPoolExecutor(concurrent * self._params["TransformResources"]["InstanceCount"]) as workers:
            for location in self._inputs():
                split = self._params["TransformInput"].get("SplitType", "None")
                try:
                    cut = payloads(self._read(location), split, strategy, most * MEGABYTE)
                    answers = list(workers.map(lambda payload: self._carry(pool, payload), list(cut)))
                except (JobFailed, ObjectError) as error:
                    failures.append(error)  # The other objects are processed all the same (TransformOutput).
                else:
                    self._write(location, answers)
        if failures:
            raise failures[0]

    def _inputs(self) -> list[S3Location]:
        """Returns the inputs of the job.

        :raises JobFailed: there is none.
        """
        uri = self._params["TransformInput"]["DataSource"]["S3DataSource"]["S3Uri"]
        prefix = S3Location.parse(uri)
        found = [S3Location(prefix.bucket, key) for key in self._objects.keys(prefix) if not key.endswith("/")]
        if not found:
            raise JobFailed(f"No objects were found at {uri}.")
        return found

    def _read(self, location: S3Location) -> bytes:
        body = self._objects.read(location, LARGEST_OBJECT)
        if self._params["TransformInput"].get("CompressionType") != "Gzip":
            return body
        try:
            return gzip.decompress(body)
        except (OSError, EOFError, zlib.error) as error:
            raise JobFailed(f"{location} is not a valid gzip object ({error}).") from error

    def _carry(self, pool: Pool, payload: bytes) -> bytes:
        """Sends one payload, with retries, and returns the reply.

        :raises JobFailed: the container rejected it, or every attempt failed.
        """
        config = self._params.get("ModelClientConfig", {})
        tries = 1 + int(config.get("InvocationsMaxRetries", MAX_RETRIES))
        said = ""
        for number in range(tries):
            pause = PAUSE * 2 ** (number - 1) if number else 0.0
            if self._stopped.wait(self._fleets.settings.timing.scaled(pause)):
                raise Cancelled
            instance = self._pick(pool)
            try:
                status, answer = self._post(instance, payload, config)
            except (OSError, http.client.HTTPException) as error:
                said = f"the container did not answer ({error})"
                continue
            finally:
                pool.release(instance)
            if status // 100 == 2:
                return answer
            said = f"the container answered {status}: {answer.decode('utf-8', 'replace')[:LONGEST_REASON]}"
            if status // 100 == 4 and status != 429:
                break  # The same payload would be rejected again. No source says whether SageMaker tries again.
        raise JobFailed(f"ClientError: a payload of {len(payload)} bytes failed: {said}")

    def _pick(self, pool: Pool) -> Instance:
        with self._changed:
            while (instance := pool.pick()) is None:
                if self._stopped.is_set():
                    raise Cancelled
                self._changed.wait(0.5)
            return instance

    def _post(self, instance: Instance, payload: bytes, config: Document) -> tuple[int, bytes]:
        timeout = float(config.get("InvocationsTimeoutInSeconds", TIMEOUT_SECONDS))
        headers: dict[str, str] = {}
        if kind := self._params["TransformInput"].get("ContentType"):
            headers["Content-Type"] = kind
        if accept := self._params["TransformOutput"].get("Accept"):
            headers["Accept"] = accept
        chunked = self._params.get("MaxPayloadInMB") == 0
        return instance.send("POST", "/invocations", timeout, iter([payload]) if chunked else payload, headers)

    def _write(self, location: S3Location, answers: list[bytes]) -> None:
        """Writes the output below the output prefix, at the input's relative path with ``.out`` appended."""
        source = S3Location.parse(self._params["TransformInput"]["DataSource"]["S3DataSource"]["S3Uri"])
        output = self._params["TransformOutput"]
        folder = source.key.rpartition("/")[0]
        relative = location.key.removeprefix(folder).lstrip("/")
        target = S3Location.parse(f"{output['S3OutputPath'].rstrip('/')}/{relative}.out")
        self._objects.write(target, assemble(answers, output.get("AssembleWith", "None")), output.get("Accept"))


def strategy_of(parameters: Document) -> str:
    """Returns the container's strategy as CreateTransformJob spells it, or SageMaker's default.

    :raises JobFailed: the container spells it in another way.
    """
    said = str(parameters.get("BatchStrategy", "MULTI_RECORD"))
    if said not in STRATEGIES:
        raise JobFailed(f"The container's BatchStrategy {said!r} is none of {', '.join(STRATEGIES)}.")
    return STRATEGIES[said]


def execution_parameters(instance: Instance) -> Document:
    """Asks the container for its parameters. A reply is optional, and the job's own parameters take precedence.

    :raises JobFailed: a number is none.
    """
    try:
        said = json.loads(call(instance, "GET", "/execution-parameters", None))
    except (InstanceStartFailed, ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    for name in ("MaxConcurrentTransforms", "MaxPayloadInMB"):
        if name in said and (type(said[name]) is not int or said[name] < 0):
            raise JobFailed(f"The container's {name} {str(said[name])[:100]!r} is not a whole number of at least 0.")
    return said


def payloads(body: bytes, split: str, strategy: str, most: int) -> Iterator[bytes]:
    """Yields the payload of each request.

    :param split: ``None`` (the whole object) or ``Line``.
    :param strategy: ``SingleRecord``, or ``MultiRecord``: as many lines as fit into ``most`` bytes. Each keeps its line
        end, and empty lines are records too (sagemaker-python-sdk, local/data.py: LineSplitter).
    :param most: 0: any size.
    :raises JobFailed: one record alone does not fit.
    """
    if split == "None":
        yield _fitting(body, most)
        return
    if strategy == "SingleRecord":
        yield from (_fitting(line, most) for line in BytesIO(body))
        return
    batch: list[bytes] = []
    size = 0
    for line in BytesIO(body):
        _fitting(line, most)
        if batch and most and size + len(line) > most:
            yield b"".join(batch)
            batch, size = [], 0
        batch.append(line)
        size += len(line)
    if batch:
        yield b"".join(batch)


def assemble(answers: list[bytes], how: str) -> bytes:
    """Joins the replies.

    :param how: ``None`` (concatenate) or ``Line`` (add a newline to each; sagemaker-python-sdk, local/entities.py).
    """
    return b"".join(answer + (b"\n" if how == "Line" else b"") for answer in answers)


def _fitting(record: bytes, most: int) -> bytes:
    if most and len(record) > most:
        raise JobFailed(f"a record of {len(record)} bytes is longer than MaxPayloadInMB ({most // MEGABYTE} MB)")
    return record
