"""Profiles on disk: found again while nothing they were made from has changed."""

import errno
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from gpuplan.catalog.bounded_folder import ABANDONED_AFTER_S
from gpuplan.profiles.profile import Affine, MemoryStream, OptimizerFacts, Profile, StepTrace
from gpuplan.profiles.tracing_process import cache
from gpuplan.profiles.tracing_process.service import begin_profile, make_profile
from gpuplan.profiles.user_model.spec import ModelSpec, parse_model_spec


def a_profile(*, rows: int = 0) -> Profile:
    """Return a small Profile whose memory stream has this many rows."""
    column = list(range(rows))
    memory = MemoryStream(
        birth_tick=column,
        death_tick=column,
        bytes_base=column,
        bytes_per_sample=column,
        category=[0] * rows,
        instance=[0] * rows,
        end_tick=rows,
    )
    step = StepTrace(
        numerics="fp32", recompute="none", segments=(), schedule=[], start_tick=[], memory=memory
    )
    return Profile(
        name="tiny",
        source_hash="0",
        params={"width": 8},
        torch_version="2.13.0",
        parameters=36,
        trainable_parameters=36,
        parameter_tensors=2,
        blocks=(),
        flops=Affine(0, 192),
        tokens_per_sample=None,
        batch_bytes=Affine(0, 40),
        file_precision=None,
        file_compiles=False,
        default_micro_batch=32,
        optimizer=OptimizerFacts(
            name="adamw",
            state_bytes_per_parameter=8,
            step_bytes_per_parameter=28,
            temporary_bytes_per_parameter=0,
            launches=1,
        ),
        steps=(step,),
    )


@pytest.fixture
def spec(tmp_path: Path) -> ModelSpec:
    file = tmp_path / "model.py"
    file.write_text("import helper\n")
    (tmp_path / "helper.py").write_text("WIDTH = 8\n")
    return parse_model_spec(str(file))


def key_of(spec: ModelSpec, **options: Any) -> str:
    key = cache.cache_key(spec, **({"numerics": ["fp32"], "optimizer": None} | options))
    assert key is not None
    return key


def keep(spec: ModelSpec, profile: Profile) -> str:
    """Store a Profile as made from the file and its neighbour."""
    key = key_of(spec)
    helper = spec.path.with_name("helper.py")
    files = {str(path): cache.file_hash(path) or "" for path in (spec.path, helper)}
    packages = {"torch": cache.package_version("torch") or ""}
    cache.store(key, profile.model_dump_json(), files=files, packages=packages)
    return key


def test_what_is_kept_is_found_again(spec: ModelSpec) -> None:
    assert cache.load(key_of(spec)) is None
    profile = a_profile(rows=3)
    assert cache.load(keep(spec, profile)) == profile


def test_the_key_holds_everything_that_a_trace_depends_on(spec: ModelSpec, tmp_path: Path) -> None:
    path = str(spec.path)
    keys = [
        key_of(spec),
        key_of(spec, numerics=["amp16"]),
        key_of(spec, numerics=None),
        key_of(spec, optimizer="sgd"),
        key_of(parse_model_spec(path, params={"width": 9})),
        key_of(parse_model_spec(path, inputs=["8"])),
        key_of(parse_model_spec(f"{path}:Net")),
    ]
    spec.path.write_text("import helper  # changed\n")
    keys.append(key_of(spec))
    assert len(set(keys)) == len(keys)
    assert key_of(parse_model_spec(path, timeout_s=5)) == keys[-1], "time says nothing of the model"


@pytest.mark.parametrize("change", ["edit", "delete"])
def test_a_module_beside_the_file_counts(spec: ModelSpec, change: str) -> None:
    key = keep(spec, a_profile())
    helper = spec.path.with_name("helper.py")
    helper.write_text("WIDTH = 9\n") if change == "edit" else helper.unlink()
    assert cache.load(key) is None


def test_a_new_version_of_a_package_that_defines_layers_counts(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keep(spec, a_profile())
    monkeypatch.setattr(cache, "package_version", lambda _: "99.0")
    assert cache.load(key) is None


@pytest.mark.parametrize("damage", [b"", b"\x00\xff", b"{}\n{}", b"[1]\n", b"null\nnull"])
def test_a_damaged_entry_is_ignored_and_replaced(spec: ModelSpec, damage: bytes) -> None:
    key = keep(spec, a_profile())
    entry = next(cache.folder().iterdir())
    entry.write_bytes(damage)
    assert cache.load(key) is None
    assert cache.load(keep(spec, a_profile())) == a_profile()


def test_half_an_entry_is_ignored(spec: ModelSpec) -> None:
    key = keep(spec, a_profile(rows=50))
    entry = next(cache.folder().iterdir())
    content = entry.read_bytes()
    entry.write_bytes(content[: len(content) * 2 // 3])
    assert cache.load(key) is None


def test_a_cache_that_cannot_be_written_is_a_warning(home_without_privileges: Path) -> None:
    home_without_privileges.chmod(0o555)
    with pytest.warns(cache.CacheWarning, match="Permission denied.*GPUPLAN_HOME"):
        cache.store("key", a_profile().model_dump_json(), files={}, packages={})
    assert list(home_without_privileges.iterdir()) == []


def test_a_full_disk_is_a_warning_and_leaves_nothing(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache.os, "replace", full)
    with pytest.warns(cache.CacheWarning, match="No space left on device"):
        keep(spec, a_profile())
    assert list(cache.folder().iterdir()) == []


def test_the_entries_used_longest_ago_go_first(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = []
    for age_s, width in ((300, 1), (200, 2), (100, 3)):
        key = key_of(parse_model_spec(str(spec.path), params={"width": width}))
        cache.store(key, a_profile().model_dump_json(), files={}, packages={})
        entry = cache.folder() / f"{key}.profile"
        old_s = entry.stat().st_mtime - age_s
        os.utime(entry, (old_s, old_s))
        keys.append(key)
    assert cache.load(keys[0]) is not None, "looking it up makes it the newest"
    one_bytes = entry.stat().st_size
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", int(2.5 * one_bytes))
    newest = keep(spec, a_profile())
    assert [cache.load(key) is not None for key in (*keys, newest)] == [True, False, False, True]


def test_an_entry_that_another_process_writes_is_not_evicted(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 1)
    replace = os.replace

    def evicted_by_another(temporary: str, entry: Path) -> None:
        monkeypatch.setattr(cache.os, "replace", replace)
        cache.store("other", a_profile().model_dump_json(), files={}, packages={})
        replace(temporary, entry)

    monkeypatch.setattr(cache.os, "replace", evicted_by_another)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        key = keep(spec, a_profile())
    assert cache.load(key) == a_profile()


def test_what_another_process_deletes_meanwhile_is_no_error(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.store("other", a_profile().model_dump_json(), files={}, packages={})
    listed = Path.iterdir

    def gone_once_listed(folder: Path) -> list[Path]:
        found = list(listed(folder))
        (folder / "other.profile").unlink()
        return found

    monkeypatch.setattr(Path, "iterdir", gone_once_listed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        key = keep(spec, a_profile())
    assert cache.load(key) == a_profile()


def test_what_a_killed_process_left_is_deleted_in_time(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "MAX_CACHE_BYTES", 1)
    cache.folder().mkdir(parents=True)
    left = cache.folder() / "half.tmp"
    left.write_text("half")
    keep(spec, a_profile())
    assert left.exists(), "it may still be written"
    old_s = left.stat().st_mtime - 2 * ABANDONED_AFTER_S
    os.utime(left, (old_s, old_s))
    keep(spec, a_profile())
    assert not left.exists()


def test_a_written_profile_is_read_back(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_text(a_profile(rows=2).model_dump_json())
    pending = begin_profile(parse_model_spec(str(file)))
    assert pending.cached
    assert pending.result() == a_profile(rows=2)


def test_a_known_profile_needs_no_torch_and_no_child(spec: ModelSpec) -> None:
    keep(spec, a_profile(rows=10))
    program = (
        "import sys, subprocess; subprocess.Popen = None\n"
        "from gpuplan.profiles.tracing_process.service import make_profile\n"
        "from gpuplan.profiles.user_model.spec import parse_model_spec\n"
        f"spec = parse_model_spec({str(spec.path)!r})\n"
        "assert make_profile(spec, numerics=['fp32']).parameters == 36\n"
        "assert 'torch' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_looked_up_or_kept_without_the_cache(
    spec: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(spec, a_profile())

    class Fake:
        def __init__(self, *_: object, **__: object) -> None:
            self.traceback = ""

        def result(self, **_: object) -> dict[str, Any]:
            made = a_profile().model_copy(update={"name": "made again"})
            return {"profile": made.model_dump_json(), "files": {}, "packages": {}}

        def printed(self) -> str:
            return ""

    monkeypatch.setattr("gpuplan.profiles.tracing_process.service.Child", Fake)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert make_profile(spec, numerics=["fp32"], use_cache=False).name == "made again"
        assert make_profile(spec, numerics=["fp32"]).name == "tiny"


def test_the_key_depends_on_what_the_code_that_traces_says_and_not_on_its_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = cache._PACKAGE
    for file in cache.code_that_traces():
        copied = tmp_path / file.relative_to(package)
        copied.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copied)
        os.utime(copied, (0, 0))
    here = cache._engine.__wrapped__()
    monkeypatch.setattr(cache, "_PACKAGE", tmp_path)
    assert cache._engine.__wrapped__() == here
    (tmp_path / "profiles" / "trace" / "trace.py").write_text("changed = True\n")
    assert cache._engine.__wrapped__() != here


@pytest.mark.slow
def test_the_code_that_traces_is_all_that_the_child_imports() -> None:
    said = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[3] / "examples",
    ).stdout
    imported = {Path(line) for line in said.splitlines()}
    assert len(imported) > 20
    # The packages' own files say what they are for, and nothing else.
    packages = {file for file in imported if file.name == "__init__.py"}
    assert imported - packages <= set(cache.code_that_traces())


IMPORTED = """
import sys
from gpuplan.profiles.tracing_process import child_main
from gpuplan.profiles.user_model.spec import parse_model_spec

for optimizer in (None, "sgd"):
    spec = parse_model_spec("gpt2.py", params={"layers": 1})
    child_main.answer({"spec": spec.to_json(), "numerics": ["amp16"], "optimizer": optimizer})
for name, module in list(sys.modules.items()):
    if name.split(".")[0] == "gpuplan" and not name.startswith("gpuplan.examples"):
        print(module.__file__)
"""


def test_equal_models_have_equal_content_wherever_their_file_is(tmp_path: Path) -> None:
    def keys(folder: Path, text: str) -> tuple[str | None, str | None]:
        folder.mkdir(exist_ok=True)
        (folder / "model.py").write_text(text)
        spec = parse_model_spec(str(folder / "model.py"), params={"layers": 2})
        asked: dict[str, Any] = {"numerics": ["fp32"], "optimizer": None}
        return cache.content_key(spec, **asked), cache.cache_key(spec, **asked)

    (here, own), (there, other) = (keys(tmp_path / name, "a = 1\n") for name in ("a", "b"))
    assert here == there and own != other
    assert keys(tmp_path / "b", "a = 2\n")[0] != here
