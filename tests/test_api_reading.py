"""What `read_inputs` asks the tracer for, and that it leaves no child process behind."""

from pathlib import Path
from typing import Any

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.profile import Affine, OptimizerFacts, Profile, StepTrace
from gpuplan.profiles.tracing_process import service


class Tracer:
    """Stands for the tracer: remembers what it was asked, and whether it was cancelled."""

    def __init__(self, file_precision: str | None = None) -> None:
        self.file_precision = file_precision
        self.asked: list[tuple[str, ...]] = []
        self.cancelled = 0

    def begin(self, spec: Any, *, numerics: tuple[str, ...], **_: object) -> "Tracer":
        self.asked.append(numerics)
        return self

    def result(self) -> Profile:
        steps = tuple(
            StepTrace.model_construct(numerics=name, segments=()) for name in self.asked[-1]
        )
        return Profile(
            name="model",
            source_hash="0" * 64,
            params={},
            torch_version="2.13.0",
            parameters=1,
            trainable_parameters=1,
            parameter_tensors=1,
            blocks=(),
            flops=Affine(0, 1),
            tokens_per_sample=None,
            batch_bytes=Affine(0, 1),
            file_precision=self.file_precision,
            file_compiles=False,
            default_micro_batch=None,
            optimizer=OptimizerFacts(
                name="adamw",
                state_bytes_per_parameter=8,
                step_bytes_per_parameter=28,
                temporary_bytes_per_parameter=0,
                launches=1,
            ),
            steps=steps,
        )

    def cancel(self) -> None:
        self.cancelled += 1


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text("")
    return path


def use(tracer: Tracer, monkeypatch: pytest.MonkeyPatch) -> Tracer:
    monkeypatch.setattr(service, "begin_profile", tracer.begin)
    return tracer


def test_a_free_choice_of_precision_traces_every_class(model, monkeypatch) -> None:
    tracer = use(Tracer(), monkeypatch)
    assert api.read_inputs(model).profile.numerics() == ("amp16", "fp32", "pure16")
    assert tracer.asked == [("amp16", "fp32", "pure16")]


def test_named_precisions_trace_no_more_than_they_need(model, monkeypatch) -> None:
    tracer = use(Tracer(file_precision="fp32"), monkeypatch)
    api.read_inputs(model, precisions=("bf16-amp", "fp16-amp", "fp8"))
    api.read_inputs(model, precisions=("tf32",))
    # Mixed precision needs the 16-bit layers as well: FSDP runs those.
    assert tracer.asked == [("amp16", "pure16"), ("fp32",)]


def test_a_file_of_its_own_precision_is_traced_in_that_too(model, monkeypatch) -> None:
    use(Tracer(file_precision="bf16"), monkeypatch)
    read = api.read_inputs(model, machine=None, precisions=())
    assert "pure16" in read.profile.numerics()


def test_an_unknown_name_ends_the_trace_at_once(model, monkeypatch) -> None:
    tracer = use(Tracer(), monkeypatch)
    with pytest.raises(UsageError, match="Did you mean aws"):
        api.read_inputs(model, machine=api.Machine(providers=("awss",)))
    assert tracer.cancelled == 1


def test_all_is_not_the_name_of_a_provider(model, monkeypatch) -> None:
    use(Tracer(), monkeypatch)
    api.read_inputs(model, machine=api.Machine(providers=("all",)))


def test_an_interrupt_ends_the_trace(model, monkeypatch) -> None:
    class Interrupted(Tracer):
        def result(self) -> Profile:
            raise KeyboardInterrupt

    tracer = use(Interrupted(), monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        api.read_inputs(model)
    assert tracer.cancelled == 1
