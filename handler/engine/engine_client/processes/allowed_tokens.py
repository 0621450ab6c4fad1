"""Gives each request of a batch its own `allowed_token_ids`, wherever vLLM samples on the CPU.

Before 0.32.0, a request may get another one's, or lose its own: the masks stay in their rows, or are copied over each
other, as requests change theirs (`condense` and `swap_states`, vllm/v1/worker/gpu_input_batch.py; vLLM's issue 43894
and pull request 48419). Where they sample on the CPU, the Neuron plugins use the same batch (vllm-project/vllm-neuron,
worker/neuronx_distributed_model_runner.py; in public forks of the native one, vllm/worker/neuron_model_runner.py).
"""

from __future__ import annotations

from typing import Any, Final

BY_REQUEST: Final = "allowed_ids_by_request"
# The versions of the CPU build and of the Neuron lines. Another one is left as it is: it may have changed the batch.
FAULTY: Final = ("0.11.", "0.13.", "0.16.", "0.21.", "0.24.", "0.29.")


def register() -> None:
    """Changes vLLM's batch of this process, unless its version has no such fault, or the batch is changed already."""
    import vllm

    if not vllm.__version__.startswith(FAULTY):
        return
    from vllm.v1.worker.gpu_input_batch import InputBatch

    own_add, own_metadata = InputBatch.add_request, InputBatch._make_sampling_metadata
    if own_metadata.__module__ == __name__:
        return

    def add_request(batch: Any, request: Any) -> Any:
        """As `InputBatch.add_request`."""
        if allowed := getattr(request.sampling_params, "allowed_token_ids", None):
            vars(batch).setdefault(BY_REQUEST, {})[request.req_id] = allowed
        return own_add(batch, request)

    def make_sampling_metadata(batch: Any) -> Any:
        """As `InputBatch._make_sampling_metadata`, which follows every change of rows."""
        if batch.has_allowed_token_ids:
            limits = {name: vars(batch)[BY_REQUEST][name] for name in batch.has_allowed_token_ids}
            setattr(batch, BY_REQUEST, limits)
            mask = batch.allowed_token_ids_mask_cpu_tensor
            mask[: batch.num_reqs] = False
            for row, name in enumerate(batch.req_ids):
                if name in limits:
                    mask[row] = True  # forbidden
                    mask[row][limits[name]] = False
        return own_metadata(batch)

    InputBatch.add_request = add_request
    InputBatch._make_sampling_metadata = make_sampling_metadata
