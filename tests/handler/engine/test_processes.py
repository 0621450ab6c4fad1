"""An engine's processes: its cores, and the workers that compute for them."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from handler.engine.engine_client.processes.engine_processes import EngineProcesses
from tests.handler.waiting import WITHIN

# A core with a worker, and another child that is not vLLM's; it tells their ids and ends with its standard input.
CORE = """
import subprocess, sys
sleep = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]
children = [subprocess.Popen(sleep, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE)]
sleep[0] = "VLLM::Worker"
children.append(subprocess.Popen(sleep, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
for child in children:
    child.stdout.readline()
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children:
    child.stdin.close()
    child.wait()
"""


def engine(*pids: int) -> EngineProcesses:
    cores: Any = tuple(SimpleNamespace(pid=pid) for pid in pids)
    return EngineProcesses(cores)


def test_cores_then_workers_and_nothing_else() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as core:
        assert core.stdout is not None
        _, worker = map(int, core.stdout.readline().split())
        found = engine(core.pid).pids()
        core.communicate(timeout=WITHIN)
    assert found == (core.pid, worker)


def test_a_core_that_is_gone_has_no_workers() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as core:
        core.wait(WITHIN)
    assert engine(core.pid).pids() == (core.pid,)


def test_an_engine_without_processes_of_its_own() -> None:
    assert engine().pids() == ()


# What two threads of vLLM's wait for, as a core and its worker do; it prints which part of the time was CPU time.
QUEUE = """
import threading, time
from handler.engine.engine_client.processes import process_plugin
process_plugin.register()
from vllm.distributed.device_communicators.shm_broadcast import MessageQueue
writer = MessageQueue(1, 1)
reader = []
thread = threading.Thread(target=lambda: reader.append(MessageQueue.create_from_handle(writer.export_handle(), 0)))
thread.start()
thread.join()
ready = threading.Thread(target=reader[0].wait_until_ready)
ready.start()
writer.wait_until_ready()
ready.join()
writer.enqueue("message")
assert reader[0].dequeue(timeout=60) == "message"
begin, cpu = time.monotonic(), time.process_time()
try:
    reader[0].dequeue(timeout=0.8)
except TimeoutError:
    print((time.process_time() - cpu) / (time.monotonic() - begin))
"""


def test_a_worker_that_waits_for_a_message_does_not_spin() -> None:
    asked = subprocess.run([sys.executable, "-c", QUEUE], capture_output=True, text=True, timeout=WITHIN, check=False)
    assert float(asked.stdout.splitlines()[-1]) < 0.5, asked.stderr
