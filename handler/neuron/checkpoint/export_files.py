"""Finds in the files of an export what would keep optimum-neuron from loading it: its graphs and its weights.

Source: optimum-neuron 0.4.5, models/inference/backend/pretrained_model.py (`load_weights`) and modules/checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from handler.config.finding import Finding, Severity
from handler.json_value import Json
from handler.neuron.checkpoint.checkpoint_files import CheckpointFiles, holds_weights, read_json
from handler.neuron.checkpoint.checkpoint_reader import EXPORT, EXPORTER, header_of
from handler.neuron.checkpoint.file_findings import Loader, error, more, not_checked, weight_findings
from handler.neuron.checkpoint.model_facts import number

GRAPHS: Final = "model.pt"
# Where the weights are, and below it those that the exporter has divided among the ranks.
CHECKPOINT, DIVIDED = "checkpoint", "weights"
MOST_RANKS: Final = 1024
AGAIN: Final = "Export it again."


def export_findings(
    files: CheckpointFiles, document: Mapping[str, Json], loader: Loader, *, complete: bool, offline: bool
) -> Iterator[Finding]:
    """What is wrong with an export.

    :param document: its config.json.
    :param complete: no file is on the hub only.
    :param offline: the endpoint has no network.
    """
    exported = read_json(files, EXPORT) or {}
    if EXPORTER not in exported:
        yield error(EXPORT, f"it has no {EXPORTER}, so optimum-neuron did not write it", "Remove it, or export again.")
        return
    if not complete:
        yield not_checked("weights", "weights that are not here")
        return
    if GRAPHS not in files.listing():
        yield error(GRAPHS, f"it is missing beside {EXPORT}: the export was interrupted", AGAIN)
    checkpoint = files.below(CHECKPOINT)
    place = checkpoint if checkpoint.listing() or checkpoint.below(DIVIDED).listing() else files
    first, ranks = number(exported, "start_rank_id"), number(exported, "local_ranks_size", "tp_degree") or 1
    names = [f"tp{rank}_sharded_checkpoint.safetensors" for rank in range(first, first + min(ranks, MOST_RANKS))]
    divided = place.below(DIVIDED)
    sizes = divided.listing()
    if names[0] in sizes:
        for name in (name for name in names if name in sizes):
            header_of(divided, name, sizes[name])
        if missing := [name for name in names if name not in sizes]:
            yield error(missing[0], f"it is not in {divided.where}{more(missing)}: the export was interrupted", AGAIN)
    elif any(holds_weights(name) for name in place.listing().keys() - {GRAPHS}):
        yield from weight_findings(place, document, loader, complete=True)
    elif place is files and isinstance(origin := exported.get("checkpoint_id"), str):
        why = f"it has no weights, and each start downloads those of {origin[:100]} from the hub"
        fix = f"Put its *.safetensors files into {CHECKPOINT}/."
        severity = Severity.ERROR if offline else Severity.WARNING
        yield Finding("weights-on-hub", severity, "weights", why, fix)
    else:
        yield error("weights", "the export has no weights", f"Put the model's *.safetensors files into {CHECKPOINT}/.")
