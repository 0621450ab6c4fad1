"""The keys of the native plugin's `neuron_config` and `vision_neuron_config`.

Source: AWS Neuron documentation, vLLM Neuron, "Configuration options" and "How to use vLLM Neuron features in your
deployment" (SDK 2.31 and 2.32). The tables there are not complete, so an unknown key that is no near miss is a warning.
"""

from __future__ import annotations

from typing import Final

from handler.neuron.neuron_config.keys import Key

NATIVE_KEYS: Final[dict[str, Key]] = {
    "num_batched_tokens_buckets": Key("list"),
    "num_seqs_buckets": Key("list"),
    "kv_segment_size_buckets": Key("list"),
    "decode_context_length_buckets": Key("list"),
    "on_device_sampling_config": Key("dict"),
    "quantization": Key("str"),
    "ep_degree": Key("int"),
    "embedding_dp_size": Key("int"),
    "lm_head_dp_size": Key("int"),
}
NATIVE_SAMPLING_KEYS: Final[dict[str, Key]] = {
    "temperature": Key("any"),
    "top_k": Key("any"),
    "top_p": Key("any"),
    "all_greedy": Key("bool"),
}
SEGMENT_SIZES: Final = (512, 1024, 2048, 4096, 8192)
DECODE_STEP: Final = 128
