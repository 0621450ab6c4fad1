# The build argument BASE_IMAGE selects the Neuron line (docs/neuron-lines.md). These base images are supported:
#   0.13.0-neuronx-py312-sdk2.28.0-ubuntu24.04   vLLM 0.13, NxD Inference; the last with NKI kernels on trn1 and inf2
#   0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04   vLLM 0.16, NxD Inference (the default)
#   0.24.0.1.1.0-neuronx-py313-sdk2.32.0-ubuntu24.04   vLLM 0.24, the native plugin; trn2 and trn3
#   0.29.0.1.2.0-neuronx-py314-sdk2.33.0-ubuntu26.04   vLLM 0.29, the native plugin; trn2 and trn3
ARG BASE_IMAGE=public.ecr.aws/neuron/pytorch-inference-vllm-neuronx:0.16.0-neuronx-py312-sdk2.31.1-ubuntu24.04
# hadolint ignore=DL3006
FROM ${BASE_IMAGE}

# The capabilities that SageMaker reads. On Neuron, the models of a multi-model endpoint are LoRA adapters.
LABEL com.amazonaws.sagemaker.capabilities.accept-bind-to-port=true \
      com.amazonaws.sagemaker.capabilities.multi-models=true \
      com.amazonaws.sagemaker.capabilities.bidirectional-streaming=true

WORKDIR /opt/neuron-endpoint

# Our few dependencies are installed first, because they change less often than the code. vLLM, the plugin and torch belong
# to the base image and must not change. So the packages of the base image are constraints, and are compared afterwards.
COPY requirements/runtime.txt requirements/
RUN python -m pip freeze --exclude-editable > /tmp/base.txt \
    && grep -E '^[A-Za-z0-9._-]+==' /tmp/base.txt > /tmp/pins.txt \
    && python -m pip install --no-cache-dir --constraint /tmp/pins.txt --requirement requirements/runtime.txt \
    && python -m pip freeze --exclude-editable > /tmp/now.txt \
    && awk 'NR == FNR { now[$0]; next } !($0 in now) { print "changed: " $0; bad = 1 } END { exit bad }' /tmp/now.txt /tmp/base.txt \
    && rm /tmp/base.txt /tmp/pins.txt /tmp/now.txt

COPY pyproject.toml README.md LICENSE ./
COPY handler handler
COPY container container
COPY model_packaging model_packaging
RUN python -m pip install --no-cache-dir --no-deps .

EXPOSE 8080

# `docker run IMAGE serve` makes `serve` PID 1, so `serve` gets SIGTERM. The entry point of the base image would run its
# arguments as a child process and would not forward signals.
ENTRYPOINT ["/usr/bin/env"]
CMD ["serve"]
