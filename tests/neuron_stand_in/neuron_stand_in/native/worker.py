"""The worker of the native stand-in: compiles at warm-up what the cache has not."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from vllm.config import set_current_vllm_config

from neuron_stand_in.checkpoint import read_checkpoint
from neuron_stand_in.device_worker import DeviceWorker
from neuron_stand_in.engine_shape import EngineShape
from neuron_stand_in.native.compile_cache import compile_missing, graphs
from neuron_stand_in.native.configuration import NativeConfiguration
from neuron_stand_in.native.native_sampler import NativeRunner
from neuron_stand_in.native.platform import NativeStandInPlatform
from neuron_stand_in.settings import StandInSettings


class NativeStandInWorker(DeviceWorker):
    def init_device(self) -> None:
        super().init_device()
        NativeStandInPlatform.runs_the_model = True
        with set_current_vllm_config(self.vllm_config):
            self.model_runner = NativeRunner(self.vllm_config, torch.device("cpu"))
        self.settings = StandInSettings.read(os.environ)
        self.model_runner.asked = NativeConfiguration.of(self.asked, os.environ)
        self.neuron_config = dict(self.model_runner.asked.neuron)

    def load_model(self) -> None:
        self.model_runner.settings = self.settings
        with set_current_vllm_config(self.vllm_config):
            self.model_runner.fill(read_checkpoint(Path(self.model_config.model)))
        self.model_runner.choose_sampler()

    def compile_or_warm_up_model(self) -> Any:
        shape = EngineShape.of(self.asked)
        todo = graphs(self.neuron_config, shape.max_num_batched_tokens, shape.max_num_seqs)
        keyed = {"neuron_config": self.neuron_config, **asdict(shape)}
        keyed.pop("model")
        compile_missing(keyed, todo, self.settings, os.environ)
        return super().compile_or_warm_up_model()  # 0.24.0 wants the times
