"""The configuration of one endpoint: one frozen dataclass with the source of every value.

A field has the name of vLLM's argument if vLLM has one. `None` means that the user did not set it: the line or the
instance decides. A field's metadata holds its documentation, its limits and its NeuronConfig keys.
docs/configuration.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from handler.config.field_metadata import KeyWriter, NxdKey, copied, doc
from handler.config.value_source import DEFAULT, Overridden, ValueSource
from handler.json_value import Json

MIB = 1024 * 1024
# Other spellings of a data type: vLLM's, LMI's, NxDI's, transformers-neuronx's.
DTYPES = {
    **dict.fromkeys(("bf16", "torch.bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "f16", "half", "torch.float16"), "float16"),
    **dict.fromkeys(("fp32", "f32", "float", "torch.float32"), "float32"),
}
QUANTIZATIONS = {
    **dict.fromkeys(("s8", "static_int8", "neuron_quant", "torch.int8"), "int8"),
    **dict.fromkeys(("f8e4m3", "f8e4m3fn", "float8_e4m3fn", "fp8_e4m3", "torch.float8_e4m3fn"), "fp8"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """The settings of one endpoint. Times are in seconds, sizes in bytes, lengths in tokens."""

    # The model, and what it runs on.
    model: str = field(
        default="/opt/ml/model", metadata=doc("the model: a directory, s3://bucket/prefix or a Hugging Face hub id")
    )
    hf_token: str | None = field(
        default=None, metadata=doc("access token for gated models of the Hugging Face hub", secret=True)
    )
    trust_remote_code: bool = field(default=False, metadata=doc("allow Python code that comes with the model"))
    served_model_name: tuple[str, ...] = field(default=(), metadata=doc("model names that a request may use"))
    engine: str = field(
        default="vllm",
        metadata=doc(
            "vllm: the embedded engine; none: the model's own code generates the replies", choices=("vllm", "none")
        ),
    )
    custom_code: bool = field(
        default=True, metadata=doc("run code/inference.py or model.py that comes with the model; false runs neither")
    )
    network_isolation: bool = field(
        default=False, metadata=doc("the container has no network: reject settings that need one, fetch nothing")
    )
    line: str | None = field(
        default=None, metadata=doc("the vLLM and Neuron generation (line) to plan for; default: the one installed")
    )
    instance: str | None = field(default=None, metadata=doc("instance type to plan for; default: this machine's"))
    compiled_artifacts: str | None = field(
        default=None, metadata=doc("artifacts compiled beforehand: a directory or s3:// prefix")
    )

    artifact_store: str | None = field(
        default=None, metadata=doc("where the endpoint saves and restores compiled artifacts: s3:// or file://")
    )
    artifact_signing_key: str | None = field(
        default=None, metadata=doc("key that signs artifacts: ARN of a Secrets Manager secret or a KMS key, or file://")
    )
    on_miss: str = field(
        default="compile",
        metadata=doc("what a start does if the store has no artifacts for it", choices=("compile", "fail", "wait")),
    )
    artifact_deadline: float = field(default=3300.0, metadata=doc("longest time that a start waits for artifacts"))
    artifact_lease: float = field(
        default=60.0,
        metadata=doc(
            "lease of a compile: after this time without renewal another instance may compile", bounds=(2, 3600)
        ),
    )

    # The serving process.
    scratch: Path = field(
        default=Path("/tmp/neuron-endpoint"),  # noqa: S108
        metadata=doc("a writable directory for temporary files"),
    )
    front_ends: int = field(
        default=1,
        metadata=doc("HTTP processes that share the one engine", bounds=(1, 64)),
    )
    port: int = field(default=8080, metadata=doc("port that the server listens on", bounds=(0, 65535)))
    safe_port_range: str | None = field(
        default=None, metadata=doc("range (first-last) that any other open port must lie in")
    )
    max_concurrent: int = field(
        default=1024, metadata=doc("most requests in flight; further ones get 429", bounds=(1, 4096))
    )
    max_body: int = field(default=25 * MIB, metadata=doc("largest request body, in bytes", bounds=(1, 1024 * MIB)))
    drain: float = field(
        default=25.0,
        metadata=doc(
            "time that running requests have after SIGTERM, or when their model is unloaded", bounds=(0, 3600)
        ),
    )
    stall: float = field(
        default=6.0, metadata=doc("time without progress of the engine after which /ping returns 500", bounds=(1, 3600))
    )
    engine_restarts: int = field(
        default=3, metadata=doc("most restarts of a failed engine within an hour", bounds=(0, 1000))
    )
    neuron_monitor: bool = field(
        default=True, metadata=doc("run neuron-monitor, if it is installed, and show its metrics at /metrics")
    )
    log_format: str | None = field(
        default=None,
        metadata=doc(
            "format of the log; default: text in a terminal and with SAGEMAKER_BASE_DIR, else json",
            choices=("json", "text"),
        ),
    )
    log_requests: bool | None = field(
        default=None, metadata=doc("log each request, without its prompt; default: true if the log is JSON")
    )
    log_prompts: bool = field(default=False, metadata=doc("log request bodies too, up to 16 KiB each"))
    emf: bool = field(default=False, metadata=doc("write CloudWatch metrics into the log (Embedded Metric Format)"))
    page: bool = field(default=False, metadata=doc("serve a web page at / with state, settings, charts and a chat"))
    inputs_schema: str = field(
        default="lmi",
        metadata=doc(
            "which API a body with `inputs` follows: LMI or Text Generation Inference", choices=("lmi", "tgi")
        ),
    )
    output_formatter: str | None = field(
        default=None,
        metadata=doc(
            "format of replies to LMI requests; default: the request decides", choices=("json", "jsonlines", "sse")
        ),
    )

    # Limits on a request.
    max_queue: int | None = field(
        default=None,
        metadata=doc(
            "most requests that wait for a slot; further ones get 429; default: the rest of max_concurrent",
            bounds=(0, 65536),
        ),
    )
    prefill_tokens: int | None = field(
        default=None,
        metadata=doc(
            "most prompt tokens in prefill beside running requests; 0: no limit",
            bounds=(0, 2**31 - 1),
        ),
    )
    max_output_tokens: int | None = field(default=None, metadata=doc("most output tokens that one request may ask for"))
    deadline: float | None = field(
        default=None,
        metadata=doc(
            "time limit of a reply that is not streamed; default: 58, asynchronous and batch: 3590", bounds=(1, 86400)
        ),
    )
    stream_deadline: float = field(default=478.0, metadata=doc("time limit of a streamed reply", bounds=(1, 86400)))

    # Multi-model, asynchronous and stateful endpoints, batch transform.
    multi_model: bool = field(
        default=False, metadata=doc("multi-model endpoint: /models loads and unloads models and adapters")
    )
    max_models: int | None = field(
        default=None,
        metadata=doc("multi-model: most models beside the one of the start; default: as many as fit into memory"),
    )
    unload_least_used: bool = field(
        default=False,
        metadata=doc("multi-model: unload the least recently used model when full; SageMaker does so itself"),
    )
    asynchronous: bool = field(
        default=False,
        metadata=doc("asynchronous endpoint: no streaming, replies have a length and an hour's time limit"),
    )
    enable_sessions: bool = field(default=False, metadata=doc("stateful sessions (NEW_SESSION and CLOSE)"))
    max_sessions: int = field(default=10_000, metadata=doc("most sessions open at once", bounds=(1, 1_000_000)))
    session_expiration: float = field(default=1200.0, metadata=doc("lifetime of a session", bounds=(1, 604_800)))
    batch_transform: bool = field(default=False, metadata=doc("this is a batch transform job"))
    max_payload_mb: int | None = field(
        default=None, metadata=doc("batch transform: largest request body, in MB", bounds=(1, 100))
    )
    batch_strategy: str | None = field(
        default=None,
        metadata=doc("batch transform: records in a request", choices=("SingleRecord", "MultiRecord")),
    )
    max_concurrent_transforms: int | None = field(default=None, metadata=doc("batch transform: most requests at once"))

    # Shape and batching.
    tensor_parallel_size: int | None = field(
        default=None,
        metadata=doc(
            "tensor parallel degree, in logical cores",
            undecided="max",
            nxd=NxdKey("tp_degree", KeyWriter.PLUGIN, competes=True),
        ),
    )
    logical_nc_config: int | None = field(
        default=None,
        metadata=doc(
            "logical NeuronCore configuration (LNC): physical cores that form one logical core",
            bounds=(1, 2),
            nxd=NxdKey("logical_nc_config"),
        ),
    )
    dtype: str | None = field(
        default=None,
        metadata=doc(
            "data type; default: the checkpoint's, or float32 on a CPU without arithmetic for that",
            choices=("bfloat16", "float16", "float32"),
            aliases=DTYPES,
            undecided="auto",
            nxd=NxdKey("torch_dtype", KeyWriter.PLUGIN, competes=True),
        ),
    )
    max_model_len: int | None = field(
        default=None,
        metadata=doc(
            "context length: prompt and output together",
            undecided="auto",
            nxd=NxdKey("seq_len", KeyWriter.PLUGIN, saved_as=("seq_len", "sequence_length")),
        ),
    )
    max_num_seqs: int | None = field(
        default=None,
        metadata=doc(
            "most sequences decoded at once (continuous batching)",
            nxd=NxdKey("batch_size", saved_as=("max_batch_size", "batch_size")),
            nxd_derived=("tkg_batch_size",),
        ),
    )
    ctx_batch_size: int | None = field(
        default=None, metadata=doc("prompts in one prefill batch", nxd=copied("ctx_batch_size"))
    )
    max_context_length: int | None = field(
        default=None, metadata=doc("longest prompt; default: max_model_len", nxd=copied("max_context_length"))
    )
    block_size: int | None = field(
        default=None,
        metadata=doc("tokens in a KV cache block", nxd=NxdKey("pa_block_size", KeyWriter.PLUGIN, saved_as=())),
    )
    num_gpu_blocks_override: int | None = field(
        default=None,
        metadata=doc("number of KV cache blocks", nxd=NxdKey("pa_num_blocks", KeyWriter.PLUGIN, saved_as=())),
    )
    enable_bucketing: bool | None = field(
        default=None,
        metadata=doc("compile graphs for several sequence lengths (buckets)", nxd=copied("enable_bucketing")),
    )
    context_encoding_buckets: tuple[int, ...] | None = field(
        default=None,
        metadata=doc("prefill buckets", nxd=copied("context_encoding_buckets"), native="num_batched_tokens_buckets"),
    )
    token_generation_buckets: tuple[int, ...] | None = field(
        default=None,
        metadata=doc("decode buckets", nxd=copied("token_generation_buckets"), native="decode_context_length_buckets"),
    )
    enable_prefix_caching: bool | None = field(
        default=None,
        metadata=doc(
            "reuse the KV cache of shared prompt prefixes",
            nxd=NxdKey("is_prefix_caching", KeyWriter.PLUGIN),
            nxd_derived=("is_block_kv_layout",),
        ),
    )
    enable_chunked_prefill: bool | None = field(
        default=None, metadata=doc("prefill long prompts in chunks", nxd_derived=("chunked_prefill_config",))
    )

    # Quantization.
    quantization: str | None = field(
        default=None,
        metadata=doc(
            "quantization of the weights: int8 or fp8",
            aliases=QUANTIZATIONS,
            nxd_derived=("quantized", "quantization_dtype"),
            native="quantization",
        ),
    )
    quantization_type: str | None = field(
        default=None,
        metadata=doc(
            "quantization scales: per_tensor_symmetric or per_channel_symmetric", nxd=copied("quantization_type")
        ),
    )
    quantized_checkpoints_path: str | None = field(
        default=None, metadata=doc("directory of the quantized weights", nxd=copied("quantized_checkpoints_path"))
    )
    modules_to_not_convert: tuple[str, ...] | None = field(
        default=None, metadata=doc("modules that are not quantized", nxd=copied("modules_to_not_convert"))
    )
    kv_cache_quant: bool | None = field(
        default=None, metadata=doc("store the KV cache in FP8", nxd=copied("kv_cache_quant"))
    )

    # Sampling.
    on_device_sampling: bool | None = field(
        default=None,
        metadata=doc(
            "true: sample on the device; false: on the CPU",
            nxd_derived=("on_device_sampling_config",),
            native="on_device_sampling_config",
        ),
    )
    structured_outputs: bool | None = field(
        default=None,
        metadata=doc(
            "true: set up the engine for structured output (grammars, JSON schemas, required tool calls)",
            native="enable_structured_outputs",
        ),
    )
    logprobs: bool | None = field(
        default=None, metadata=doc("true: set up the engine for log probabilities of generated tokens")
    )
    global_topk: int | None = field(default=None, metadata=doc("largest top_k that on-device sampling allows"))

    # Speculation.
    speculative_model: str | None = field(
        default=None, metadata=doc("the draft model: a directory, s3://bucket/prefix or a hub id")
    )
    speculation: str | None = field(
        default=None,
        metadata=doc(
            "method of speculative decoding",
            choices=("draft_model", "eagle", "eagle3", "medusa"),
            nxd_derived=("enable_eagle_speculation", "enable_fused_speculation"),
        ),
    )
    num_speculative_tokens: int | None = field(
        default=None, metadata=doc("draft tokens in a step (speculation length)", nxd=NxdKey("speculation_length"))
    )
    fused_speculation: bool | None = field(default=None, metadata=doc("compile draft and target into one graph"))

    # Kernels and graph options.
    attn_kernel_enabled: bool | None = field(
        default=None, metadata=doc("use the flash attention kernel", nxd=copied("attn_kernel_enabled"))
    )
    qkv_kernel_enabled: bool | None = field(
        default=None, metadata=doc("use the QKV kernel", nxd=copied("qkv_kernel_enabled"))
    )
    mlp_kernel_enabled: bool | None = field(
        default=None, metadata=doc("use the MLP kernel", nxd=copied("mlp_kernel_enabled"))
    )
    quantized_mlp_kernel_enabled: bool | None = field(
        default=None, metadata=doc("use the quantized MLP kernel", nxd=copied("quantized_mlp_kernel_enabled"))
    )
    fused_qkv: bool | None = field(
        default=None, metadata=doc("fuse the Q, K and V projections into one", nxd=copied("fused_qkv"))
    )
    sequence_parallel_enabled: bool | None = field(
        default=None, metadata=doc("use sequence parallelism", nxd=copied("sequence_parallel_enabled"))
    )
    async_mode: bool | None = field(
        default=None,
        metadata=doc("overlap the work of host and device (asynchronous execution)", nxd=copied("async_mode")),
    )
    skip_warmup: bool | None = field(
        default=None, metadata=doc("do not run each graph once after the model is loaded", nxd=copied("skip_warmup"))
    )
    save_sharded_checkpoint: bool | None = field(
        default=None, metadata=doc("save one file of weights for each rank", nxd=copied("save_sharded_checkpoint"))
    )

    # LoRA, multimodal, distributed.
    enable_lora: bool | None = field(default=None, metadata=doc("serve LoRA adapters"))
    lora_modules: Mapping[str, str] = field(
        default_factory=dict, metadata=doc("LoRA adapters: name -> directory or s3:// prefix")
    )
    max_adapters: int = field(
        default=100, metadata=doc("most adapters registered; at most max_loras of them are in device memory")
    )
    max_loras: int | None = field(default=None, metadata=doc("most adapters in device memory"))
    max_lora_rank: int | None = field(default=None, metadata=doc("largest LoRA rank"))
    lora_target_modules: tuple[str, ...] | None = field(default=None, metadata=doc("modules that LoRA adapters change"))
    text_neuron_config: Mapping[str, Json] | None = field(
        default=None, metadata=doc("multimodal: NeuronConfig of the text model")
    )
    vision_neuron_config: Mapping[str, Json] | None = field(
        default=None, metadata=doc("multimodal: NeuronConfig of the vision model")
    )
    disaggregation: str | None = field(
        default=None, metadata=doc("role of this endpoint in disaggregated inference", choices=("prefill", "decode"))
    )
    nodes: int | None = field(default=None, metadata=doc("instances that share one model"))

    # vLLM's serving layer: chat templates, tool calls, formats of replies. The names are vLLM's.
    chat_template: str | None = field(
        default=None,
        metadata=doc("chat template: a path, a file name beside the model, or the text", server_argument=True),
    )
    chat_template_content_format: str = field(
        default="auto",
        metadata=doc(
            "how a chat template is given message contents: as a string, or as OpenAI's list of parts",
            choices=("auto", "string", "openai"),
            server_argument=True,
        ),
    )
    default_chat_template_kwargs: Mapping[str, Json] = field(
        default_factory=dict,
        metadata=doc("chat template arguments for requests that give none", server_argument=True),
    )
    trust_request_chat_template: bool = field(
        default=False, metadata=doc("allow a request to send its own chat template", server_argument=True)
    )
    response_role: str = field(default="assistant", metadata=doc("role name in replies", server_argument=True))
    enable_auto_tool_choice: bool = field(
        default=False,
        metadata=doc("allow tool_choice auto: the model decides whether to call a tool", server_argument=True),
    )
    exclude_tools_when_tool_choice_none: bool = field(
        default=False, metadata=doc("leave the tools out of the prompt if tool_choice is none", server_argument=True)
    )
    tool_call_parser: str | None = field(
        default=None, metadata=doc("parser for the model's tool calls: hermes ...", server_argument=True)
    )
    tool_parser_plugin: str | None = field(
        default=None,
        metadata=doc("Python file with a tool call parser; requires trust_remote_code", server_argument=True),
    )
    enable_prompt_tokens_details: bool = field(
        default=False, metadata=doc("report cached prompt tokens in usage", server_argument=True)
    )
    enable_force_include_usage: bool = field(
        default=False, metadata=doc("end every stream with its usage", server_argument=True)
    )
    return_tokens_as_token_ids: bool = field(
        default=False, metadata=doc("name tokens by their ids in logprobs", server_argument=True)
    )
    max_sequences: int = field(
        default=128, metadata=doc("most sequences that one request may ask for (prompts times n)", bounds=(1, 4096))
    )

    # Settings without a field of their own.
    neuron_config: Mapping[str, Json] = field(
        default_factory=dict,
        metadata=doc("raw NeuronConfig keys, added to those that the fields above give", merged=True),
    )
    engine_args: Mapping[str, Json] = field(
        default_factory=dict, metadata=doc("further vLLM engine arguments: name -> value", merged=True)
    )
    neuron_env: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc(
            "environment variables of the Neuron software, passed on unchanged (NEURON_CC_FLAGS ...)", merged=True
        ),
    )

    sources: Mapping[str, ValueSource] = field(
        default_factory=dict, repr=False, metadata=doc("the source of each value", setting=False)
    )
    overridden: Mapping[str, tuple[Overridden, ...]] = field(
        default_factory=dict,
        repr=False,
        metadata=doc("values of weaker sources that were not used, by field", setting=False),
    )
    unused: Mapping[str, str] = field(
        default_factory=dict,
        repr=False,
        metadata=doc("settings without effect here, each with the reason", merged=True, setting=False),
    )

    def source(self, name: str) -> ValueSource:
        """The source of a field's value. `engine_args.<name>` and `neuron_config.<key>` have sources of their own."""
        return self.sources.get(name, DEFAULT)
