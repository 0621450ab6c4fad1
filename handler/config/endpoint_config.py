"""The configuration of one endpoint: one frozen dataclass with the source of every value.

A field has the name of vLLM's argument if vLLM has one. `None` means that the user did not set it: the line or the
instance decides. A field's metadata holds its documentation, its limits and its NeuronConfig keys.
docs/configuration.md is generated from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from handler.config.field_metadata import COPIED, KeyWriter, NxdKey, model_data, model_place, owners
from handler.config.value_source import DEFAULT, Overridden, ValueSource
from handler.json_value import Json

MIB = 1024 * 1024
# Other spellings of a data type: vLLM's, LMI's, NxDI's, transformers-neuronx's.
DTYPES = {
    **dict.fromkeys(("bf16", "torch.bfloat16"), "bfloat16"),
    **dict.fromkeys(("fp16", "f16", "half", "torch.float16"), "float16"),
    **dict.fromkeys(("fp32", "f32", "float", "torch.float32"), "float32"),
}
# The guide's spelling of `SAGEMAKER_BATCH_STRATEGY` and /execution-parameters, by CreateTransformJob's.
BATCH_STRATEGIES = {
    **dict.fromkeys(("singlerecord", "single_record"), "SINGLE_RECORD"),
    **dict.fromkeys(("multirecord", "multi_record"), "MULTI_RECORD"),
}
QUANTIZATIONS = {
    **dict.fromkeys(("s8", "static_int8", "neuron_quant", "torch.int8"), "int8"),
    **dict.fromkeys(("f8e4m3", "f8e4m3fn", "float8_e4m3fn", "fp8_e4m3", "torch.float8_e4m3fn"), "fp8"),
}
# vLLM's engine arguments that describe how a model runs: a file beside the model may set them.
MODEL_ARGUMENTS = (
    "additional_config async_scheduling attention_config calculate_kv_scales convert cpu_offload_gb device "
    "disable_cascade_attn disable_chunked_mm_input disable_hybrid_kv_cache_manager disable_sliding_window "
    "enable_expert_parallel enforce_eager generation_config gpu_memory_utilization guided_decoding_backend "
    "hf_overrides kv_cache_dtype limit_mm_per_prompt long_prefill_token_threshold lora_dtype "
    "lora_extra_vocab_size max_cpu_loras max_logprobs max_long_partial_prefills max_num_batched_tokens "
    "max_num_partial_prefills max_seq_len_to_capture mm_processor_kwargs optimization_level "
    "override_attention_dtype override_generation_config override_pooler_config pipeline_parallel_size "
    "pooler_config reasoning_parser revision rope_scaling rope_theta runner scheduling_policy seed "
    "skip_mm_profiling speculative_config speculative_disable_by_batch_size "
    "speculative_draft_tensor_parallel_size speculative_max_model_len structured_outputs_config swap_space task "
    "tokenizer tokenizer_mode tokenizer_revision use_v2_block_manager"
)
# The same of the Neuron software's variables.
MODEL_VARIABLES = (
    "DISABLE_NEURON_CUSTOM_SCHEDULER NEURON_CC_FLAGS NEURON_COMPILE_CACHE_URL NEURON_CUSTOM_SILU "
    "NEURON_FUSE_SOFTMAX NEURON_LIBTORCH_COMPILATION_TIMEOUT NEURON_RT_EXEC_TIMEOUT NEURON_RT_STOCHASTIC_ROUNDING_EN "
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED NEURON_RT_VIRTUAL_CORE_SIZE NEURON_SCRATCHPAD_PAGE_SIZE UNSAFE_FP8FNCAST "
    "VLLM_ALLOW_LONG_MAX_MODEL_LEN VLLM_ENGINE_READY_TIMEOUT_S VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS "
    "VLLM_NEURON_FRAMEWORK XLA_DENSE_GATHER_FACTOR XLA_HANDLE_SPECIAL_SCALAR XLA_USE_BF16"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointConfig:
    """The settings of one endpoint. Times are in seconds, sizes in bytes, lengths in tokens."""

    # The model, and what it runs on.
    model: str = model_place(
        "/opt/ml/model", "the model: a directory (also as file:///), s3://bucket/prefix or a Hugging Face hub id"
    )
    hf_token: str | None = owners(None, "access token for gated models of the Hugging Face hub", secret=True)
    trust_remote_code: bool = owners(False, "allow Python code that comes with the model")
    served_model_name: tuple[str, ...] = model_data((), "model names that a request may use")
    engine: str = owners(
        "vllm", "vllm: the embedded engine; none: the model's own code generates the replies", choices=("vllm", "none")
    )
    custom_code: bool = owners(True, "run code/inference.py or model.py that comes with the model; false runs neither")
    requirements: str = owners(
        "offline",
        "requirements.txt beside custom code: install it from the wheels in requirements/, download too, or ignore it",
        choices=("offline", "download", "none"),
        aliases={"true": "download", "false": "none"},
    )
    network_isolation: bool = owners(
        False, "the container has no network: reject settings that need one, fetch nothing"
    )
    line: str | None = model_data(None, "the vLLM and Neuron generation (line) to plan for; default: the one installed")
    instance: str | None = model_data(None, "instance type to plan for; default: this machine's")
    compiled_artifacts: str | None = model_place(
        None, "artifacts compiled beforehand: a directory, an archive or s3://"
    )

    artifact_store: str | None = model_place(
        None, "where the endpoint saves and restores compiled artifacts: s3:// or file://"
    )
    artifact_signing_key: str | None = owners(
        None, "key that signs artifacts: ARN of a Secrets Manager secret or a KMS key, or file://"
    )
    on_miss: str = model_data(
        "compile", "what a start does if the store has no artifacts for it", choices=("compile", "fail", "wait")
    )
    artifact_deadline: float = owners(3300.0, "longest time that a start waits for artifacts", bounds=(1, 86400))
    artifact_lease: float = owners(
        60.0, "lease of a compile: after this time without renewal another instance may compile", bounds=(2, 3600)
    )

    # The serving process.
    scratch: Path = owners(Path("/tmp/neuron-endpoint"), "a writable directory for temporary files")  # noqa: RUF009, S108
    port: int = owners(8080, "port that the server listens on", bounds=(0, 65535))
    safe_port_range: str | None = owners(None, "range (first-last) that any other open port must lie in")
    max_concurrent: int = model_data(1024, "most requests in flight; further ones get 429", bounds=(1, 4096))
    max_body: int = owners(25 * MIB, "largest request body, in bytes", bounds=(1, 1024 * MIB))
    body_budget: int | None = owners(
        None,
        "most bytes that the bodies of all requests have together; default: 1/32 of the memory, at least 2 x max_body",
        bounds=(1, 1024 * 1024 * MIB),
    )
    drain: float = owners(
        25.0, "time that running requests have after SIGTERM, or when their model is unloaded", bounds=(0, 3600)
    )
    stall: float = owners(6.0, "time without progress of the engine after which /ping returns 500", bounds=(1, 3600))
    engine_restarts: int = owners(3, "most restarts of a failed engine within an hour", bounds=(0, 1000))
    preload_after: float = owners(
        60.0,
        "seconds of serving after which vLLM is loaded for the next serving process: replaces a failed engine in less "
        "than half of a start's time, for some 550 MB of memory; 0: never",
        bounds=(0, 86400),
    )
    neuron_monitor: bool = owners(True, "run neuron-monitor, if it is installed, and show its metrics at /metrics")
    log_format: str | None = owners(
        None,
        "format of the log; default: text in a terminal and with SAGEMAKER_BASE_DIR, else json",
        choices=("json", "text"),
    )
    log_requests: bool | None = owners(None, "log each request, without its prompt; default: true if the log is JSON")
    log_prompts: bool = owners(False, "log request bodies too, up to 16 KiB each")
    emf: bool = owners(False, "write CloudWatch metrics into the log (Embedded Metric Format)")
    page: bool = owners(False, "serve a web page at / with state, settings, charts and a chat")
    inputs_schema: str = model_data(
        "lmi", "which API a body with `inputs` follows: LMI or Text Generation Inference", choices=("lmi", "tgi")
    )
    output_formatter: str | None = model_data(
        None, "format of replies to LMI requests; default: the request decides", choices=("json", "jsonlines", "sse")
    )

    # Limits on a request.
    max_queue: int | None = model_data(
        None,
        "most requests that wait for a slot; further ones get 429; default: the rest of max_concurrent",
        bounds=(0, 65536),
    )
    slot_share: float | None = owners(
        None,
        "largest share of the engine's slots that one request holds with all its sequences, prompts or lines; "
        "default: 0.5, batch transform: 1",
        bounds=(0.001, 1),
    )
    prefill_tokens: int | None = model_data(
        None, "most prompt tokens in prefill beside running requests; 0: no limit", bounds=(0, 2**31 - 1)
    )
    max_output_tokens: int | None = model_data(None, "most output tokens that one request may ask for")
    deadline: float | None = owners(
        None,
        "time limit of a reply that is not streamed; default: 58, asynchronous: 890, batch transform: 590",
        bounds=(1, 86400),
    )
    stream_deadline: float = owners(478.0, "time limit of a streamed reply", bounds=(1, 86400))

    # Multi-model, asynchronous and stateful endpoints, batch transform.
    multi_model: bool = owners(False, "multi-model endpoint: /models loads and unloads models and adapters")
    max_models: int | None = owners(
        None, "multi-model: most models beside the one of the start; default: as many as fit into memory"
    )
    unload_least_used: bool = owners(
        False, "multi-model: unload the least recently used model when full; SageMaker does so itself"
    )
    batch_store: str | None = owners(
        None, "where /v1/files and /v1/batches keep their files: a directory or s3://bucket/prefix; default: off"
    )
    asynchronous: bool = owners(
        False, "asynchronous endpoint: no streaming, replies have a length and SageMaker's time limit of 15 minutes"
    )
    enable_sessions: bool = owners(False, "stateful sessions (NEW_SESSION and CLOSE)")
    max_sessions: int = owners(10_000, "most sessions open at once", bounds=(1, 1_000_000))
    session_expiration: float = owners(1200.0, "lifetime of a session", bounds=(1, 604_800))
    batch_transform: bool = owners(False, "this is a batch transform job")
    max_payload_mb: int | None = owners(
        None, "batch transform: largest request body, in MB; 0: chunked bodies of up to 100 MB", bounds=(0, 100)
    )
    batch_strategy: str | None = owners(
        None,
        "batch transform: records in a request",
        choices=("SINGLE_RECORD", "MULTI_RECORD"),
        aliases=BATCH_STRATEGIES,
    )
    max_concurrent_transforms: int | None = owners(
        None, "batch transform: most requests at once; 0: the engine's capacity decides", bounds=(0, 2**31 - 1)
    )

    # Shape and batching.
    tensor_parallel_size: int | None = model_data(
        None,
        "tensor parallel degree, in logical cores",
        undecided="max",
        nxd=NxdKey("tp_degree", KeyWriter.PLUGIN, competes=True),
    )
    logical_nc_config: int | None = model_data(
        None,
        "logical NeuronCore configuration (LNC): physical cores that form one logical core",
        bounds=(1, 2),
        nxd=NxdKey("logical_nc_config"),
    )
    dtype: str | None = model_data(
        None,
        "data type; default: the checkpoint's, or float32 on a CPU without arithmetic for that",
        choices=("bfloat16", "float16", "float32"),
        aliases=DTYPES,
        undecided="auto",
        nxd=NxdKey("torch_dtype", KeyWriter.PLUGIN, competes=True),
    )
    max_model_len: int | None = model_data(
        None,
        "context length: prompt and output together",
        undecided="auto",
        nxd=NxdKey("seq_len", KeyWriter.PLUGIN, saved_as=("seq_len", "sequence_length")),
    )
    max_num_seqs: int | None = model_data(
        None,
        "most sequences decoded at once (continuous batching)",
        nxd=NxdKey("batch_size", saved_as=("max_batch_size", "batch_size")),
        nxd_derived=("tkg_batch_size",),
    )
    ctx_batch_size: int | None = model_data(None, "prompts in one prefill batch", nxd=COPIED)
    max_context_length: int | None = model_data(None, "longest prompt; default: max_model_len", nxd=COPIED)
    block_size: int | None = model_data(
        None, "tokens in a KV cache block", nxd=NxdKey("pa_block_size", KeyWriter.PLUGIN, saved_as=())
    )
    num_gpu_blocks_override: int | None = model_data(
        None, "number of KV cache blocks", nxd=NxdKey("pa_num_blocks", KeyWriter.PLUGIN, saved_as=())
    )
    enable_bucketing: bool | None = model_data(
        None, "compile graphs for several sequence lengths (buckets)", nxd=COPIED
    )
    context_encoding_buckets: tuple[int, ...] | None = model_data(
        None, "prefill buckets", nxd=COPIED, native="num_batched_tokens_buckets"
    )
    token_generation_buckets: tuple[int, ...] | None = model_data(
        None, "decode buckets", nxd=COPIED, native="decode_context_length_buckets"
    )
    enable_prefix_caching: bool | None = model_data(
        None,
        "reuse the KV cache of shared prompt prefixes",
        nxd=NxdKey("is_prefix_caching", KeyWriter.PLUGIN),
        nxd_derived=("is_block_kv_layout",),
    )
    enable_chunked_prefill: bool | None = model_data(
        None, "prefill long prompts in chunks", nxd_derived=("chunked_prefill_config",)
    )

    # Quantization.
    quantization: str | None = model_data(
        None,
        "quantization of the weights: int8 or fp8",
        aliases=QUANTIZATIONS,
        nxd_derived=("quantized", "quantization_dtype"),
        native="quantization",
    )
    quantization_type: str | None = model_data(
        None, "quantization scales: per_tensor_symmetric or per_channel_symmetric", nxd=COPIED
    )
    quantized_checkpoints_path: str | None = model_place(None, "directory of the quantized weights", nxd=COPIED)
    modules_to_not_convert: tuple[str, ...] | None = model_data(
        None, "modules that are not quantized", nxd=COPIED, native="modules_to_not_convert"
    )
    kv_cache_quant: bool | None = model_data(None, "store the KV cache in FP8", nxd=COPIED)

    # Sampling.
    on_device_sampling: bool | None = model_data(
        None,
        "true: sample on the device; false: on the CPU",
        nxd_derived=("on_device_sampling_config",),
        native="on_device_sampling_config",
    )
    structured_outputs: bool | None = model_data(
        None,
        "true: set up the engine for structured output (grammars, JSON schemas, required tool calls)",
        native="enable_structured_outputs",
    )
    logprobs: bool | None = model_data(None, "true: set up the engine for log probabilities of generated tokens")
    global_topk: int | None = model_data(None, "largest top_k that on-device sampling allows")

    # Speculation.
    speculative_model: str | None = model_place(None, "the draft model: a directory, s3://bucket/prefix or a hub id")
    speculation: str | None = model_data(
        None,
        "method of speculative decoding",
        choices=("draft_model", "eagle", "eagle3", "medusa"),
        nxd_derived=("enable_eagle_speculation", "enable_fused_speculation"),
    )
    num_speculative_tokens: int | None = model_data(
        None, "draft tokens in a step (speculation length)", nxd=NxdKey("speculation_length")
    )
    fused_speculation: bool | None = model_data(None, "compile draft and target into one graph")

    # Kernels and graph options.
    attn_kernel_enabled: bool | None = model_data(None, "use the flash attention kernel", nxd=COPIED)
    qkv_kernel_enabled: bool | None = model_data(None, "use the QKV kernel", nxd=COPIED)
    mlp_kernel_enabled: bool | None = model_data(None, "use the MLP kernel", nxd=COPIED)
    quantized_mlp_kernel_enabled: bool | None = model_data(None, "use the quantized MLP kernel", nxd=COPIED)
    fused_qkv: bool | None = model_data(None, "fuse the Q, K and V projections into one", nxd=COPIED)
    sequence_parallel_enabled: bool | None = model_data(None, "use sequence parallelism", nxd=COPIED)
    async_mode: bool | None = model_data(
        None, "overlap the work of host and device (asynchronous execution)", nxd=COPIED
    )
    skip_warmup: bool | None = model_data(None, "do not run each graph once after the model is loaded", nxd=COPIED)
    save_sharded_checkpoint: bool | None = model_data(None, "save one file of weights for each rank", nxd=COPIED)

    # LoRA, multimodal, distributed.
    enable_lora: bool | None = model_data(None, "serve LoRA adapters")
    lora_modules: Mapping[str, str] = model_place({}, "LoRA adapters: name -> directory or s3:// prefix")
    max_adapters: int = model_data(100, "most adapters registered; at most max_loras of them are in device memory")
    max_loras: int | None = model_data(None, "most adapters in device memory")
    max_lora_rank: int | None = model_data(None, "largest LoRA rank; vLLM's own default is 16")
    lora_target_modules: tuple[str, ...] | None = model_data(None, "modules that LoRA adapters change")
    text_neuron_config: Mapping[str, Json] | None = model_data(None, "multimodal: NeuronConfig of the text model")
    vision_neuron_config: Mapping[str, Json] | None = model_data(None, "multimodal: NeuronConfig of the vision model")
    disaggregation: str | None = owners(
        None, "role of this endpoint in disaggregated inference", choices=("prefill", "decode")
    )
    nodes: int | None = owners(None, "instances that share one model")

    # vLLM's serving layer: chat templates, tool calls, formats of replies. The names are vLLM's.
    chat_template: str | None = model_place(
        None, "chat template: a path, a file name beside the model, or the text", server_argument=True
    )
    chat_template_content_format: str = model_data(
        "auto",
        "how a chat template is given message contents: as a string, or as OpenAI's list of parts",
        choices=("auto", "string", "openai"),
        server_argument=True,
    )
    default_chat_template_kwargs: Mapping[str, Json] = model_data(
        {}, "chat template arguments for requests that give none", server_argument=True
    )
    trust_request_chat_template: bool = owners(
        False, "allow a request to send its own chat template", server_argument=True
    )
    trust_request_mm_kwargs: bool = owners(
        False,
        "allow a request to set how its media are read: mm_processor_kwargs, media_io_kwargs",
        server_argument=True,
    )
    response_role: str = model_data("assistant", "role name in replies", server_argument=True)
    enable_auto_tool_choice: bool = model_data(
        False, "allow tool_choice auto: the model decides whether to call a tool", server_argument=True
    )
    exclude_tools_when_tool_choice_none: bool = model_data(
        False, "leave the tools out of the prompt if tool_choice is none", server_argument=True
    )
    tool_call_parser: str | None = model_data(
        None, "parser for the model's tool calls: hermes ...", server_argument=True
    )
    tool_parser_plugin: str | None = owners(
        None, "Python file with a tool call parser; requires trust_remote_code", server_argument=True
    )
    enable_prompt_tokens_details: bool = model_data(False, "report cached prompt tokens in usage", server_argument=True)
    enable_force_include_usage: bool = model_data(False, "end every stream with its usage", server_argument=True)
    return_tokens_as_token_ids: bool = model_data(False, "name tokens by their ids in logprobs", server_argument=True)
    max_sequences: int = owners(128, "most sequences that one request may ask for (prompts times n)", bounds=(1, 4096))
    max_copied_bytes: int = owners(
        32 * MIB, "most bytes that one request has copied to its sequences, all together", bounds=(1, 1024 * MIB)
    )
    max_reply_logprobs: int = owners(
        2**18, "most log probabilities in one reply, with those of the likeliest tokens", bounds=(1, 2**26)
    )

    # Settings without a field of their own.
    neuron_config: Mapping[str, Json] = model_data(
        {}, "raw NeuronConfig keys, added to those that the fields above give", merged=True
    )
    engine_args: Mapping[str, Json] = model_data(
        {}, "further vLLM engine arguments: name -> value", merged=True, model_file_keys=MODEL_ARGUMENTS
    )
    neuron_env: Mapping[str, str] = model_data(
        {},
        "environment variables of the Neuron software, passed on unchanged (NEURON_CC_FLAGS ...)",
        merged=True,
        model_file_keys=MODEL_VARIABLES,
    )

    sources: Mapping[str, ValueSource] = owners({}, "the source of each value", by_user=False)
    overridden: Mapping[str, tuple[Overridden, ...]] = owners(
        {}, "values of weaker sources that were not used, by field", by_user=False
    )
    unused: Mapping[str, str] = owners(
        {}, "settings without effect here, each with the reason", merged=True, by_user=False
    )

    def source(self, name: str) -> ValueSource:
        """The source of a field's value. `engine_args.<name>` and `neuron_config.<key>` have sources of their own."""
        return self.sources.get(name, DEFAULT)

    def setting(self, name: str) -> str:
        """The name by which the user set a field or an engine argument: a variable or a key, else the name itself."""
        return self.source(name).name or self.source(f"engine_args.{name}").name or name

    def raw_key(self, name: str) -> str:
        """The name by which the user set a raw NeuronConfig key."""
        return self.source(f"neuron_config.{name}").name or name or "neuron_config"
