# The build argument BASE_IMAGE selects the Neuron line (docs/neuron-lines.md). These base images are supported:
#   0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04   vLLM 0.16, NxD Inference (the default)
#   0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04   vLLM 0.24, the native plugin; trn2 and trn3
#   0.29.0.1.2.0-neuronx-py314-sdk2.33.0-ubuntu26.04   vLLM 0.29, the native plugin; trn2 and trn3
# To fix the base's content, add its digest: ...:TAG@sha256:DIGEST (docs/images.md). The layers stand in the order of change.
ARG BASE_IMAGE=public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04

# hadolint ignore=DL3006
FROM ${BASE_IMAGE} AS system
# hadolint ignore=DL3002
USER 0
# Python finds our directories after the base's own. vLLM, the plugin and torch belong to the base and do not change.
RUN python -c "import sysconfig; open(sysconfig.get_path('purelib') + '/neuron-endpoint.pth', 'w').write('/opt/neuron-endpoint/code\n/opt/neuron-endpoint/packages\n')" \
    && useradd --uid 10001 --home-dir /tmp --no-create-home --shell /usr/sbin/nologin endpoint \
    && rm -f /etc/passwd- /etc/group- /etc/shadow- /etc/gshadow- /etc/subuid- /etc/subgid-

# Our few dependencies, as far as the base does not have them. Installed where they stay: a copy from another stage would be
# read by each build.
FROM system AS packages
COPY requirements/image.txt requirements/runtime.txt image/install_locked.py /opt/neuron-endpoint/locked/
RUN export PYTHONDONTWRITEBYTECODE=1 \
    && python /opt/neuron-endpoint/locked/install_locked.py /opt/neuron-endpoint/locked/image.txt /opt/neuron-endpoint/packages /opt/neuron-endpoint/locked/runtime.txt \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/neuron-endpoint/packages

# What builds, and is not in the image.
FROM packages AS tools
WORKDIR /build
COPY requirements/image-tools.txt ./
RUN python -m venv --without-pip /opt/tools \
    && python -m pip --python /opt/tools/bin/python install --no-cache-dir --no-deps --require-hashes --requirement image-tools.txt

# The bill of materials, in CycloneDX's format, and the licences that it states.
FROM tools AS bill
COPY pyproject.toml image/licences.py ./
RUN /opt/tools/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml --output-file sbom.cdx.json "$(command -v python)" \
    && python licences.py sbom.cdx.json > licences.txt

# The wheel without the code: version, programs and shell completion. A change of the code does not make it again.
FROM tools AS programs
COPY pyproject.toml README.md LICENSE ./
COPY completion completion
RUN python -m pip --python /opt/tools/bin/python wheel --quiet --no-build-isolation --no-deps --no-cache-dir --wheel-dir dist . \
    && python -m pip install --quiet --no-index --no-deps --no-compile --root-user-action=ignore --no-cache-dir --target /opt/neuron-endpoint/code dist/*.whl

FROM programs AS code
COPY . .
RUN cp -r container handler model_packaging /opt/neuron-endpoint/code \
    && chmod -R a+rX,go-w /opt/neuron-endpoint/code \
    && python -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/neuron-endpoint/code

# Nothing is set after the code, so a change of it makes one layer.
FROM packages
# The capabilities that SageMaker reads. It hosts no multi-model endpoints on instances with Neuron cores.
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      com.amazonaws.sagemaker.capabilities.bidirectional-streaming=true
# Only /tmp needs to be writable.
ENV PATH=/opt/neuron-endpoint/code/bin:$PATH HOME=/tmp LOGNAME=endpoint
# SageMaker expects containers to run as root ("Custom inference code with hosting services"). Elsewhere give --user 10001.
# hadolint ignore=DL3002
USER 0
EXPOSE 8080
HEALTHCHECK --start-period=1h CMD ["python", "-m", "container.health_check"]

# `docker run IMAGE serve` makes `serve` PID 1, so `serve` gets SIGTERM. The entry point of the base image would run its
# arguments as a child process and would not forward signals.
ENTRYPOINT ["/usr/bin/env"]
CMD ["serve"]
COPY --from=bill /build/sbom.cdx.json /build/licences.txt /opt/neuron-endpoint/
COPY --from=code /opt/neuron-endpoint/code /opt/neuron-endpoint/code
