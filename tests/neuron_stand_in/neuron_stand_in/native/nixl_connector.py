"""The plugin's connector by name, so that vLLM builds a configuration with it. It moves nothing."""

from __future__ import annotations

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, SupportsHMA


class NeuronNixlConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]  # vLLM is untyped
    pass
