"""Neural networks on ONNX Runtime: one session for each model in a process, with the providers asked for.

This is the only module that imports ``onnxruntime``.
"""

import functools
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from shared.errors import ModelError, ProviderError
from shared.models import weights_path

CPU = "CPUExecutionProvider"


@dataclass(frozen=True, slots=True)
class RuntimeConfig:
    """How networks are run.

    Attributes:
        providers: ONNX Runtime execution providers, best first; what is asked for must load.
        intra_op_threads: Threads inside one operator. One is best on small shared machines: the
            pipeline already runs its stages side by side.
    """

    providers: tuple[str, ...] = (CPU,)
    intra_op_threads: int = 1

    def __post_init__(self) -> None:
        if not self.providers:
            raise ValueError("providers must name at least one execution provider")
        if self.intra_op_threads < 1:
            raise ValueError(f"intra_op_threads must be at least 1, not {self.intra_op_threads}")


@functools.cache
def onnxruntime_module() -> ModuleType:
    """The ``onnxruntime`` module, its own log kept to errors and its telemetry off.

    Raises:
        ModelError: If neither of its two distributions is installed.
    """
    # From 1.29 on the official builds write a device id to the home folder and report to their maker as
    # soon as they are imported; only these variables, set before, stop that wholly (two names, by release).
    os.environ["ORT_DISABLE_TELEMETRY"] = os.environ["ORT_TELEMETRY_DISABLED"] = "1"
    try:
        import onnxruntime
    except ImportError as err:
        raise ModelError(
            "ONNX Runtime is not installed: run `pip install 'lethe[cpu]'` "
            "(or `lethe[gpu]` for an NVIDIA card; never both)"
        ) from err
    onnxruntime.set_default_logger_severity(3)
    onnxruntime.disable_telemetry_events()  # for Windows, which does not look at the variables
    return onnxruntime


def available_providers() -> tuple[str, ...]:
    """Execution providers this installation of ONNX Runtime offers."""
    return tuple(onnxruntime_module().get_available_providers())


@dataclass(slots=True)
class Session:
    """One loaded network. Safe to run from several threads.

    Attributes:
        name: The model's name in the registry.
        provider: The provider that runs it.
        input_names: In the graph's order.
        output_names: In the graph's order.
    """

    name: str
    provider: str
    input_names: tuple[str, ...]
    output_names: tuple[str, ...]
    _session: Any = field(repr=False)

    def run(self, *inputs: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Run the network on its inputs, in the graph's order; gives all outputs in the graph's order."""
        return self._session.run(None, dict(zip(self.input_names, inputs, strict=True)))

    def output_index(self, name: str) -> int:
        """Position of an output by its name."""
        return self.output_names.index(name)


def _check_providers(config: RuntimeConfig) -> None:
    available = available_providers()
    for provider in config.providers:
        if provider not in available:
            raise ProviderError(
                f"execution provider {provider} is not in this ONNX Runtime (it has "
                f"{', '.join(available)}): install the matching extra or ask for another provider",
                provider=provider,
                available=available,
            )


def _create(name: str, path: Path, config: RuntimeConfig) -> Session:
    ort = onnxruntime_module()
    _check_providers(config)
    options = ort.SessionOptions()
    options.intra_op_num_threads = config.intra_op_threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = ort.InferenceSession(str(path), options, providers=list(config.providers))
    except Exception as err:  # ONNX Runtime raises a different class for each fault
        raise ModelError(f"model {name} does not load: {str(err).splitlines()[0]}") from err
    got = tuple(session.get_providers())
    missing = [p for p in config.providers if p not in got]
    if missing:
        raise ProviderError(
            f"execution provider {missing[0]} was asked for, but ONNX Runtime could not start it and would "
            f"run on {', '.join(got)}: `lethe doctor` says what is missing",
            provider=missing[0],
            available=got,
        )
    return Session(
        name,
        config.providers[0],
        tuple(i.name for i in session.get_inputs()),
        tuple(o.name for o in session.get_outputs()),
        session,
    )


def _warm_up(session: Session) -> None:
    """Run once on zeros, so that the first real frame does not pay for lazy set-up."""
    dtypes = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
    inputs = []
    for node in session._session.get_inputs():
        # A free dimension is a batch of one or a picture side: 32 suits every stride we use.
        shape = [d if isinstance(d, int) else (1 if i == 0 else 32) for i, d in enumerate(node.shape)]
        inputs.append(np.zeros(shape, dtypes.get(node.type, np.float32)))
    session.run(*inputs)


class SessionPool:
    """Loads each model at most once in a process and hands out the same session.

    Args:
        config: How to run the networks.
    """

    def __init__(self, config: RuntimeConfig | None = None) -> None:
        self.config = config or RuntimeConfig()

    # One for all pools: two pools with equal settings share their sessions.
    _lock = threading.Lock()  # protects _sessions, and makes loading happen once
    _sessions: dict[tuple[str, RuntimeConfig], Session] = {}  # noqa: RUF012 (shared on purpose)

    def get(self, name: str) -> Session:
        """The session of a packaged model, warm.

        Raises:
            ModelError: If the model is missing or damaged.
            ProviderError: If a provider that was asked for does not load.
        """
        with self._lock:
            key = (name, self.config)
            if key not in self._sessions:
                session = _create(name, weights_path(name), self.config)
                _warm_up(session)
                self._sessions[key] = session
            return self._sessions[key]

    def loaded(self) -> Mapping[str, str]:
        """Provider of each model loaded with this pool's settings."""
        with self._lock:
            return {name: s.provider for (name, config), s in self._sessions.items() if config == self.config}
