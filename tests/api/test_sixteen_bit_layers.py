"""A step that is right under autocast, and fails where its layers are 16-bit themselves (FSDP)."""

from pathlib import Path

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.profiles.missing_numerics import FAILS, FSDP_CASTS, NEVER_TRACED
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process import service

UNET = Path(__file__).parents[1] / "support" / "models" / "ddpm_unet.py"
FAILING = 1 + UNET.read_text().splitlines().index(
    "        embedded = self.time(time_embedding(time, self.width))"
)
"""Floats that `forward` makes itself: FSDP casts what enters the model and its blocks alone."""
WORK = api.Work(samples=10**6, global_batch=64)
MACHINE = api.Machine(accelerators=("A100-40GB-SXM",), providers=("aws",), max_nodes=2)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def unet(tmp_path_factory: pytest.TempPathFactory) -> api.Inputs:
    return api.read_inputs(UNET, use_cache=False)


def ask(inputs: api.Inputs, **choices: object) -> api.Estimate:
    question = api.Question(
        work=WORK,
        machine=MACHINE,
        choices=api.Choices(**choices),  # pyright: ignore[reportArgumentType]
        all_variants=True,
    )
    return api.estimate(inputs, question)


def test_autocast_and_fp32_stay_and_one_note_names_the_line(unet: api.Inputs) -> None:
    answer = ask(unet)
    kinds = {(plan.precision, plan.layout.zero_stage) for plan in answer.plans}
    assert {("bf16-amp", 0), ("bf16-amp", 1), ("tf32", 0), ("tf32", 3)} <= kinds
    assert not {("bf16-amp", 2), ("bf16-amp", 3)} & kinds
    notes = [note for note in answer.notes if "FSDP" in note]
    assert len(notes) == 1
    assert notes[0].startswith(f"{FAILS} at ddpm_unet.py:{FAILING}, in forward: RuntimeError:")


def test_an_fsdp_layout_asked_for_is_explained(unet: api.Inputs) -> None:
    layout = api.parse_layout("fsdp8")
    answer = ask(unet, layouts=(layout,), precisions=("bf16-amp",))
    assert not answer.plans and answer.rejected.unsupported
    assert any(note.startswith(FAILS) for note in answer.notes)
    with pytest.raises(UsageError, match=rf"would fail at ddpm_unet\.py:{FAILING}"):
        api.fits(unet, "A10G", precision="bf16-amp", layout=layout)


def test_fits_proposes_no_layout_that_would_fail(unet: api.Inputs) -> None:
    answer = api.fits(unet, "A10G", precision="bf16-amp", micro_batch=30_000)
    assert not answer.fits
    assert [one.text for one in answer.remedies if "fsdp" in one.text] == []


def test_the_cache_remembers_that_it_failed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GPUPLAN_HOME", str(tmp_path))
    made = api.read_inputs(UNET, precisions=("bf16-amp",)).profile
    monkeypatch.setattr(service, "Child", None)
    assert api.read_inputs(UNET, precisions=("bf16-amp",)).profile == made
    assert made.numerics() == ("amp16",)
    with pytest.raises(TypeError):
        # Whoever cannot do without them does not get what was kept.
        service.make_profile(api.model(UNET), numerics=("amp16", "pure16"))


def test_sixteen_bit_layers_asked_for_are_an_error() -> None:
    with pytest.raises(UserFileError, match=rf"ddpm_unet\.py:{FAILING}"):
        api.read_inputs(UNET, precisions=("bf16-amp", "bf16"), use_cache=False)


def test_a_step_that_always_fails_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(UNET.read_text().replace("F.mse_loss(", "F.no_such_loss("))
    with pytest.raises(UserFileError, match=r"model\.py:\d+, in compute_loss.*no_such_loss"):
        api.read_inputs(file, use_cache=False)


def test_a_profile_that_was_made_without_them_says_so(unet: api.Inputs, tmp_path: Path) -> None:
    written = tmp_path / "profile.json"
    plain: Profile = unet.profile.model_copy(update={"notes": ()})
    written.write_text(plain.model_dump_json())
    answer = ask(api.read_inputs(written), precisions=("bf16-amp",))
    assert {plan.layout.zero_stage for plan in answer.plans} == {0, 1}
    assert NEVER_TRACED in answer.notes


def test_floats_that_the_loss_makes_are_cast_by_fsdp(tmp_path: Path) -> None:
    """torch's FSDP casts what enters the model and its blocks; plans without it are left out."""
    file = tmp_path / "model.py"
    text = UNET.read_text().replace("self.time(time_embedding(time, self.width))", "{}")
    file.write_text(text.replace("{}", "time_embedding(time, self.width)"))
    answer = ask(api.read_inputs(file, use_cache=False))
    stages = {plan.layout.zero_stage for plan in answer.plans if plan.precision == "bf16-amp"}
    assert {0, 1, 2, 3} <= stages
    assert "bf16" not in {plan.precision for plan in answer.plans}
    (note,) = [note for note in answer.notes if note.startswith(FSDP_CASTS)]
    line = 1 + text.splitlines().index("        x = self.first(x)")
    assert f"at model.py:{line}, in forward: RuntimeError:" in note
