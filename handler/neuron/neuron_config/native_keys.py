"""The keys of the native plugin's `neuron_config` and `vision_neuron_config`.

Source: AWS Neuron documentation, vLLM Neuron, "Configuration options" and "How to use vLLM Neuron features in your
deployment" (SDK 2.31 and 2.32). The tables there are not complete. An unknown key is therefore only a warning,
unless it resembles a known one.
"""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.keys import ConfigKey

NATIVE_KEYS: Final[dict[str, ConfigKey]] = {
    "num_batched_tokens_buckets": ConfigKey("list"),
    "num_seqs_buckets": ConfigKey("list"),
    "kv_segment_size_buckets": ConfigKey("list"),
    "decode_context_length_buckets": ConfigKey("list"),
    "on_device_sampling_config": ConfigKey("dict"),
    "quantization": ConfigKey("str"),
    "ep_degree": ConfigKey("int"),
    "embedding_dp_size": ConfigKey("int"),
    "lm_head_dp_size": ConfigKey("int"),
}
NATIVE_SAMPLING_KEYS: Final[dict[str, ConfigKey]] = {
    "temperature": ConfigKey("any"),
    "top_k": ConfigKey("any"),
    "top_p": ConfigKey("any"),
    "all_greedy": ConfigKey("bool"),
}
SEGMENT_SIZES: Final = (512, 1024, 2048, 4096, 8192)
DECODE_STEP: Final = 128
