import builtins
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared import ort
from shared.errors import ModelError, ProviderError
from shared.ort import CPU, RuntimeConfig, Session, SessionPool, available_providers

MODEL = "mobilefacenet192"
REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def no_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is loaded yet, and what is loaded here does not stay."""
    monkeypatch.setattr(SessionPool, "_sessions", {})


def test_a_network_runs_and_names_what_goes_in_and_comes_out() -> None:
    session = SessionPool().get(MODEL)
    (vector,) = session.run(np.zeros((1, 112, 112, 3), np.float32))
    assert vector.shape == (1, 192)
    assert (session.name, session.provider) == (MODEL, CPU)
    assert len(session.input_names) == 1
    assert session.output_index(session.output_names[0]) == 0


def test_a_network_wants_all_of_its_inputs() -> None:
    with pytest.raises(ValueError, match="zip"):
        SessionPool().get(MODEL).run()


def test_pools_with_equal_settings_share_a_session() -> None:
    assert SessionPool().get(MODEL) is SessionPool(RuntimeConfig()).get(MODEL)


@pytest.mark.usefixtures("no_sessions")
def test_pools_with_other_settings_have_a_session_of_their_own() -> None:
    one, two = SessionPool(), SessionPool(RuntimeConfig(intra_op_threads=2))
    assert one.get(MODEL) is not two.get(MODEL)


@pytest.mark.usefixtures("no_sessions")
def test_a_pool_tells_the_provider_of_what_it_loaded_and_of_nothing_else() -> None:
    one, two = SessionPool(), SessionPool(RuntimeConfig(intra_op_threads=2))
    assert one.loaded() == {}
    one.get(MODEL)
    assert one.loaded() == {MODEL: CPU}
    assert two.loaded() == {}


@pytest.mark.usefixtures("no_sessions")
def test_a_network_is_loaded_once_though_many_threads_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    create = ort._create

    def counted(name: str, path: Path, config: RuntimeConfig) -> Session:
        made.append(name)
        return create(name, path, config)

    monkeypatch.setattr(ort, "_create", counted)
    pool = SessionPool()
    threads = [threading.Thread(target=pool.get, args=(MODEL,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [MODEL]


def test_a_provider_that_is_not_installed_is_an_error_that_names_what_there_is() -> None:
    with pytest.raises(ProviderError, match="MagicExecutionProvider is not in this ONNX Runtime") as caught:
        SessionPool(RuntimeConfig(("MagicExecutionProvider", CPU))).get(MODEL)
    assert caught.value.provider == "MagicExecutionProvider"
    assert caught.value.available == available_providers()
    assert CPU in str(caught.value)


@pytest.mark.usefixtures("no_sessions")
def test_a_provider_that_does_not_start_is_never_replaced_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ort.onnxruntime_module()
    real = module.InferenceSession
    monkeypatch.setattr(ort, "available_providers", lambda: (CPU, "CUDAExecutionProvider"))
    monkeypatch.setattr(module, "InferenceSession", lambda path, options, **_: real(path, options, [CPU]))
    with pytest.raises(ProviderError, match=r"CUDAExecutionProvider was asked for, but .* would run on CPU"):
        SessionPool(RuntimeConfig(("CUDAExecutionProvider", CPU))).get(MODEL)


@pytest.mark.usefixtures("no_sessions")
def test_a_file_that_is_no_network_is_a_model_error_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"this is no network")
    monkeypatch.setattr(ort, "weights_path", lambda name: tmp_path / "bad.onnx")
    with pytest.raises(ModelError, match="model yunet does not load: ") as caught:
        SessionPool().get("yunet")
    assert "\n" not in str(caught.value)
    assert SessionPool().loaded() == {}


def test_without_onnx_runtime_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: Any, **more: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError(name)
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ModelError, match=r"pip install 'lethe\[cpu\]'"):
        ort.onnxruntime_module.__wrapped__()


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one execution provider"):
        RuntimeConfig(())
    with pytest.raises(ValueError, match="intra_op_threads must be at least 1, not 0"):
        RuntimeConfig(intra_op_threads=0)


def test_the_runtime_leaves_no_trace_at_home_and_reports_to_nobody(tmp_path: Path) -> None:
    """Official builds write a device id and upload when imported, unless they are told not to before."""
    script = "from shared.ort import SessionPool; SessionPool().get('yunet')"
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "XDG_"))}
    environment = kept | {"HOME": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}
    subprocess.run([sys.executable, "-c", script], env=environment, cwd=tmp_path, check=True, timeout=60)
    assert list(tmp_path.rglob("*")) == []
