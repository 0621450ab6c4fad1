"""What an endpoint was asked to be: one frozen, typed value in which every value knows its source.

A field's name is vLLM's argument name where vLLM has one. `None` means: not asked for, the line or the instance
decides. Each field's metadata says what it is; the configuration reference is generated from it.
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
    """The settings of one endpoint. Times in seconds, sizes in bytes, lengths in tokens."""

    # The model and the ground it runs on.
    model: str = field(default="/opt/ml/model", metadata=doc("a directory, s3://bucket/prefix or a hub id"))
    hf_token: str | None = field(default=None, metadata=doc("token for gated hub models", secret=True))
    trust_remote_code: bool = field(default=False, metadata=doc("run Python code that comes with the model"))
    served_model_name: tuple[str, ...] = field(default=(), metadata=doc("names a request may call the model by"))
    engine: str = field(
        default="vllm", metadata=doc("vllm, or none: the model's own code answers by itself", choices=("vllm", "none"))
    )
    custom_code: bool = field(
        default=True, metadata=doc("run code/inference.py or model.py that comes with the model; false runs neither")
    )
    network_isolation: bool = field(default=False, metadata=doc("the endpoint reaches no network: nothing is fetched"))
    line: str | None = field(default=None, metadata=doc("the line of vLLM and Neuron; default: what is installed"))
    instance: str | None = field(default=None, metadata=doc("instance type; default: what this machine is"))
    compiled_artifacts: str | None = field(default=None, metadata=doc("compiled artifacts: a directory or s3://"))

    artifact_store: str | None = field(
        default=None, metadata=doc("where compiled artifacts are kept: s3:// or file://")
    )
    artifact_signing_key: str | None = field(
        default=None, metadata=doc("arn: of a Secrets Manager secret or KMS key, or file://, that signs artifacts")
    )
    on_miss: str = field(
        default="compile",
        metadata=doc("no artifacts in the store: compile, fail or wait", choices=("compile", "fail", "wait")),
    )
    artifact_deadline: float = field(default=3300.0, metadata=doc("how long a start waits for artifacts"))
    artifact_lease: float = field(
        default=60.0, metadata=doc("how long a dead instance's compile blocks others", bounds=(2, 3600))
    )

    # The serving process.
    scratch: Path = field(default=Path("/tmp/neuron-endpoint"), metadata=doc("a writable directory"))  # noqa: S108
    front_ends: int = field(
        default=1,
        metadata=doc("processes that speak HTTP over the one engine (SAGEMAKER_MODEL_SERVER_WORKERS)", bounds=(1, 64)),
    )
    port: int = field(default=8080, metadata=doc("port to serve", bounds=(0, 65535)))
    safe_port_range: str | None = field(default=None, metadata=doc("first-last: where any other port must lie"))
    max_concurrent: int = field(default=1024, metadata=doc("requests in flight; one more gets 429", bounds=(1, 4096)))
    max_body: int = field(default=25 * MIB, metadata=doc("largest request body, bytes", bounds=(1, 1024 * MIB)))
    drain: float = field(
        default=25.0,
        metadata=doc("how long requests may go on after SIGTERM, or when their model is unloaded", bounds=(0, 3600)),
    )
    stall: float = field(
        default=6.0, metadata=doc("silence of the engine after which /ping says 500", bounds=(1, 3600))
    )
    engine_restarts: int = field(default=3, metadata=doc("failed engines replaced within an hour", bounds=(0, 1000)))
    neuron_monitor: bool = field(default=True, metadata=doc("run neuron-monitor, where it is installed, for /metrics"))
    log_format: str | None = field(
        default=None,
        metadata=doc(
            "json or text; default: text in a terminal and with SAGEMAKER_BASE_DIR, else json", choices=("json", "text")
        ),
    )
    log_requests: bool | None = field(
        default=None, metadata=doc("log each request, without its prompt; default: where the log is JSON")
    )
    log_prompts: bool = field(default=False, metadata=doc("requests are logged with their bodies, up to 16 KiB"))
    emf: bool = field(default=False, metadata=doc("write CloudWatch metrics into the log (Embedded Metric Format)"))
    page: bool = field(default=False, metadata=doc("a page for people at /: state, settings, charts and a chat"))
    inputs_schema: str = field(
        default="lmi", metadata=doc("whose `inputs` bodies are: lmi or tgi", choices=("lmi", "tgi"))
    )
    output_formatter: str | None = field(
        default=None,
        metadata=doc(
            "LMI's: json, jsonlines or sse; default: the request decides", choices=("json", "jsonlines", "sse")
        ),
    )

    # Limits on a request.
    max_queue: int | None = field(
        default=None,
        metadata=doc(
            "requests that wait for a slot; one more gets 429; default: max_concurrent's rest", bounds=(0, 65536)
        ),
    )
    prefill_tokens: int | None = field(
        default=None,
        metadata=doc(
            "prompt tokens on their way to a first token beside running requests; 0: as many as come",
            bounds=(0, 2**31 - 1),
        ),
    )
    max_output_tokens: int | None = field(default=None, metadata=doc("most tokens that one request may ask for"))
    deadline: float | None = field(
        default=None,
        metadata=doc("a reply not made by then is ended; default: 58, asynchronous and batch: 3590", bounds=(1, 86400)),
    )
    stream_deadline: float = field(default=478.0, metadata=doc("a stream not ended by then is", bounds=(1, 86400)))

    # SageMaker's other ways to ask.
    multi_model: bool = field(
        default=False, metadata=doc("a multi-model endpoint (SAGEMAKER_MULTI_MODEL): models and adapters by /models")
    )
    max_models: int | None = field(
        default=None, metadata=doc("multi-model: models beside the start's; default: what the host's memory holds")
    )
    unload_least_used: bool = field(
        default=False,
        metadata=doc("multi-model: a full endpoint unloads one by itself; on SageMaker its platform does"),
    )
    asynchronous: bool = field(
        default=False, metadata=doc("an asynchronous endpoint: every reply whole, with its length, within an hour")
    )
    enable_sessions: bool = field(default=False, metadata=doc("stateful sessions: NEW_SESSION and CLOSE"))
    max_sessions: int = field(default=10_000, metadata=doc("sessions open at once", bounds=(1, 1_000_000)))
    session_expiration: float = field(default=1200.0, metadata=doc("how long a session may go on", bounds=(1, 604_800)))
    batch_transform: bool = field(default=False, metadata=doc("a batch transform job (SAGEMAKER_BATCH)"))
    max_payload_mb: int | None = field(default=None, metadata=doc("batch transform: largest body, MB", bounds=(1, 100)))
    batch_strategy: str | None = field(
        default=None,
        metadata=doc("batch transform: SingleRecord or MultiRecord", choices=("SingleRecord", "MultiRecord")),
    )
    max_concurrent_transforms: int | None = field(default=None, metadata=doc("batch transform: requests at once"))

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
        metadata=doc("LNC: physical cores to a logical one, 1 or 2", bounds=(1, 2), nxd=NxdKey("logical_nc_config")),
    )
    dtype: str | None = field(
        default=None,
        metadata=doc(
            "data type; default: the checkpoint's, float32 on a CPU that has no arithmetic for it",
            choices=("bfloat16", "float16", "float32"),
            aliases=DTYPES,
            undecided="auto",
            nxd=NxdKey("torch_dtype", KeyWriter.PLUGIN, competes=True),
        ),
    )
    max_model_len: int | None = field(
        default=None,
        metadata=doc(
            "context: prompt and answer together",
            undecided="auto",
            nxd=NxdKey("seq_len", KeyWriter.PLUGIN, saved_as=("seq_len", "sequence_length")),
        ),
    )
    max_num_seqs: int | None = field(
        default=None,
        metadata=doc(
            "sequences decoded at once (continuous batching)",
            nxd=NxdKey("batch_size", saved_as=("max_batch_size", "batch_size")),
            nxd_derived=("tkg_batch_size",),
        ),
    )
    ctx_batch_size: int | None = field(
        default=None, metadata=doc("prompts prefilled at once", nxd=copied("ctx_batch_size"))
    )
    max_context_length: int | None = field(
        default=None, metadata=doc("longest prompt; default: max_model_len", nxd=copied("max_context_length"))
    )
    block_size: int | None = field(
        default=None, metadata=doc("KV cache block", nxd=NxdKey("pa_block_size", KeyWriter.PLUGIN, saved_as=()))
    )
    num_gpu_blocks_override: int | None = field(
        default=None, metadata=doc("KV cache blocks", nxd=NxdKey("pa_num_blocks", KeyWriter.PLUGIN, saved_as=()))
    )
    enable_bucketing: bool | None = field(
        default=None, metadata=doc("compile for several lengths", nxd=copied("enable_bucketing"))
    )
    context_encoding_buckets: tuple[int, ...] | None = field(
        default=None,
        metadata=doc("prefill lengths", nxd=copied("context_encoding_buckets"), native="num_batched_tokens_buckets"),
    )
    token_generation_buckets: tuple[int, ...] | None = field(
        default=None,
        metadata=doc("decode lengths", nxd=copied("token_generation_buckets"), native="decode_context_length_buckets"),
    )
    enable_prefix_caching: bool | None = field(
        default=None,
        metadata=doc(
            "reuse the KV cache of shared prefixes",
            nxd=NxdKey("is_prefix_caching", KeyWriter.PLUGIN),
            nxd_derived=("is_block_kv_layout",),
        ),
    )
    enable_chunked_prefill: bool | None = field(
        default=None, metadata=doc("prefill long prompts in pieces", nxd_derived=("chunked_prefill_config",))
    )

    # Quantization.
    quantization: str | None = field(
        default=None,
        metadata=doc(
            "weights: int8 or fp8",
            aliases=QUANTIZATIONS,
            nxd_derived=("quantized", "quantization_dtype"),
            native="quantization",
        ),
    )
    quantization_type: str | None = field(
        default=None, metadata=doc("per_tensor_symmetric or per_channel_symmetric", nxd=copied("quantization_type"))
    )
    quantized_checkpoints_path: str | None = field(
        default=None, metadata=doc("where the quantized weights are", nxd=copied("quantized_checkpoints_path"))
    )
    modules_to_not_convert: tuple[str, ...] | None = field(
        default=None, metadata=doc("modules left unquantized", nxd=copied("modules_to_not_convert"))
    )
    kv_cache_quant: bool | None = field(default=None, metadata=doc("KV cache in FP8", nxd=copied("kv_cache_quant")))

    # Sampling.
    on_device_sampling: bool | None = field(
        default=None,
        metadata=doc(
            "sample on the device; false: on the CPU",
            nxd_derived=("on_device_sampling_config",),
            native="on_device_sampling_config",
        ),
    )
    global_topk: int | None = field(default=None, metadata=doc("largest top_k that on-device sampling allows"))

    # Speculation.
    speculative_model: str | None = field(default=None, metadata=doc("the draft: directory, s3:// or hub id"))
    speculation: str | None = field(
        default=None,
        metadata=doc(
            "draft_model, eagle, eagle3 or medusa",
            choices=("draft_model", "eagle", "eagle3", "medusa"),
            nxd_derived=("enable_eagle_speculation", "enable_fused_speculation"),
        ),
    )
    num_speculative_tokens: int | None = field(
        default=None, metadata=doc("speculation length", nxd=NxdKey("speculation_length"))
    )
    fused_speculation: bool | None = field(default=None, metadata=doc("draft and target in one graph"))

    # Kernels and graph options.
    attn_kernel_enabled: bool | None = field(
        default=None, metadata=doc("flash attention kernel", nxd=copied("attn_kernel_enabled"))
    )
    qkv_kernel_enabled: bool | None = field(default=None, metadata=doc("QKV kernel", nxd=copied("qkv_kernel_enabled")))
    mlp_kernel_enabled: bool | None = field(default=None, metadata=doc("MLP kernel", nxd=copied("mlp_kernel_enabled")))
    quantized_mlp_kernel_enabled: bool | None = field(
        default=None, metadata=doc("quantized MLP kernel", nxd=copied("quantized_mlp_kernel_enabled"))
    )
    fused_qkv: bool | None = field(default=None, metadata=doc("one QKV projection", nxd=copied("fused_qkv")))
    sequence_parallel_enabled: bool | None = field(
        default=None, metadata=doc("sequence parallelism", nxd=copied("sequence_parallel_enabled"))
    )
    async_mode: bool | None = field(default=None, metadata=doc("overlap host and device", nxd=copied("async_mode")))
    skip_warmup: bool | None = field(
        default=None, metadata=doc("do not run each graph once after loading", nxd=copied("skip_warmup"))
    )
    save_sharded_checkpoint: bool | None = field(
        default=None, metadata=doc("store one weights file for each rank", nxd=copied("save_sharded_checkpoint"))
    )

    # LoRA, multimodal, distributed.
    enable_lora: bool | None = field(default=None, metadata=doc("serve LoRA adapters"))
    lora_modules: Mapping[str, str] = field(default_factory=dict, metadata=doc("adapters: name -> directory or s3://"))
    max_adapters: int = field(default=100, metadata=doc("adapters loaded; those beyond max_loras are not in memory"))
    max_loras: int | None = field(default=None, metadata=doc("adapters in memory"))
    max_lora_rank: int | None = field(default=None, metadata=doc("largest adapter rank"))
    lora_target_modules: tuple[str, ...] | None = field(default=None, metadata=doc("modules that adapters change"))
    text_neuron_config: Mapping[str, Json] | None = field(default=None, metadata=doc("multimodal: the text model's"))
    vision_neuron_config: Mapping[str, Json] | None = field(
        default=None, metadata=doc("multimodal: the vision model's")
    )
    disaggregation: str | None = field(
        default=None, metadata=doc("prefill or decode, in disaggregated inference", choices=("prefill", "decode"))
    )
    nodes: int | None = field(default=None, metadata=doc("instances under one model"))

    # The front end: how answers are read and written (vLLM's names).
    chat_template: str | None = field(
        default=None, metadata=doc("a file, one beside the model, or the text", server_argument=True)
    )
    chat_template_content_format: str = field(
        default="auto",
        metadata=doc(
            "contents as string or openai (parts)", choices=("auto", "string", "openai"), server_argument=True
        ),
    )
    default_chat_template_kwargs: Mapping[str, Json] = field(
        default_factory=dict,
        metadata=doc("arguments of the chat template where a request gives none", server_argument=True),
    )
    trust_request_chat_template: bool = field(
        default=False, metadata=doc("let a request bring its chat template", server_argument=True)
    )
    response_role: str = field(default="assistant", metadata=doc("the role of answers", server_argument=True))
    enable_auto_tool_choice: bool = field(
        default=False, metadata=doc("let the model decide to call tools", server_argument=True)
    )
    exclude_tools_when_tool_choice_none: bool = field(
        default=False, metadata=doc("leave tools out of the prompt when tool_choice is none", server_argument=True)
    )
    tool_call_parser: str | None = field(
        default=None, metadata=doc("how the model writes tool calls: hermes ...", server_argument=True)
    )
    tool_parser_plugin: str | None = field(
        default=None, metadata=doc("Python file with a tool call parser; needs trust_remote_code", server_argument=True)
    )
    enable_prompt_tokens_details: bool = field(
        default=False, metadata=doc("usage tells cached prompt tokens", server_argument=True)
    )
    enable_force_include_usage: bool = field(
        default=False, metadata=doc("every stream ends with its usage", server_argument=True)
    )
    return_tokens_as_token_ids: bool = field(
        default=False, metadata=doc("logprobs name tokens by their ids", server_argument=True)
    )
    max_sequences: int = field(
        default=128, metadata=doc("sequences one request may ask for: prompts times n", bounds=(1, 4096))
    )

    # Whatever has no plain name.
    neuron_config: Mapping[str, Json] = field(
        default_factory=dict, metadata=doc("raw NeuronConfig, laid over the rest", merged=True)
    )
    engine_args: Mapping[str, Json] = field(
        default_factory=dict, metadata=doc("further vLLM engine arguments by name", merged=True)
    )
    neuron_env: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc(
            "variables of the Neuron software that are passed on as they are (NEURON_CC_FLAGS ...)", merged=True
        ),
    )

    sources: Mapping[str, ValueSource] = field(
        default_factory=dict, repr=False, metadata=doc("where each value is from", setting=False)
    )
    overridden: Mapping[str, tuple[Overridden, ...]] = field(
        default_factory=dict,
        repr=False,
        metadata=doc("values put aside for a stronger source's, by field", setting=False),
    )
    unused: Mapping[str, str] = field(
        default_factory=dict,
        repr=False,
        metadata=doc("settings that have no effect here, each with the reason", merged=True, setting=False),
    )

    def source(self, name: str) -> ValueSource:
        """Where a field's value came from; `engine_args.<name>` and `neuron_config.<key>` have their own."""
        return self.sources.get(name, DEFAULT)
