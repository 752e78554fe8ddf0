"""`gpuplan config` and the defaults it gives: file, then environment, then what is typed."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import click
import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.cli import main as main_module
from gpuplan.cli.commands.config import command as config_command
from gpuplan.cli.main import run
from gpuplan.cli.options import settings


@click.command("demo")
@click.option("--top", type=int, default=20, help="Rows.")
@click.option("--max-price", type=float, help="Dollars an hour.")
@click.option("--provider", default="any", help="Providers.")
@click.option("--region", multiple=True, help="Regions.")
@click.option("--quiet/--no-quiet", default=False, help="Less.")
@click.option("--spot", "purchase", flag_value="spot", help="Spot.")
@click.option("--on-demand", "purchase", flag_value="on-demand", help="On demand.")
def demo(**values: object) -> None:
    """Print the options it was given."""
    click.echo(" ".join(f"{key}={value}" for key, value in sorted(values.items())))


@pytest.fixture(autouse=True)
def one_command(monkeypatch: pytest.MonkeyPatch) -> None:
    commands = {"demo": demo, "config": config_command}
    monkeypatch.setattr(main_module, "COMMANDS", dict.fromkeys(commands, ""))
    monkeypatch.setattr(
        main_module.LazyGroup, "get_command", lambda self, context, name: commands.get(name)
    )


def answer(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    code = run(args)
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refusal(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert run(args) == 2
    return capsys.readouterr().err


def test_without_settings_the_options_keep_their_defaults(capsys) -> None:
    assert answer(capsys, "demo") == (
        "max_price=None provider=any purchase=None quiet=False region=() top=20\n"
    )


def test_every_kind_of_option_takes_its_default_from_the_file(capsys) -> None:
    for words in (
        ("top", "3"),
        ("max-price", "1.5"),
        ("provider", "aws,gcp"),
        ("region", "eu-west-1", "us-east-1"),
        ("quiet", "yes"),
        ("spot", "true"),
    ):
        answer(capsys, "config", "set", *words)
    assert answer(capsys, "demo") == (
        "max_price=1.5 provider=aws,gcp purchase=spot quiet=True"
        " region=('eu-west-1', 'us-east-1') top=3\n"
    )
    assert settings.config_path().read_text() == (
        'top = 3\nmax-price = 1.5\nprovider = "aws,gcp"\n'
        'region = ["eu-west-1", "us-east-1"]\nquiet = true\nspot = true\n'
    )


def test_environment_wins_over_the_file_and_typed_options_over_both(capsys, monkeypatch) -> None:
    answer(capsys, "config", "set", "top", "3")
    assert "top=3" in answer(capsys, "demo")
    monkeypatch.setenv("GPUPLAN_TOP", "4")
    assert "top=4" in answer(capsys, "demo")
    assert "top=5" in answer(capsys, "demo", "--top", "5")


def test_a_typed_flag_wins_over_its_rival_in_the_settings(capsys, monkeypatch) -> None:
    monkeypatch.setenv("GPUPLAN_SPOT", "1")
    monkeypatch.setenv("GPUPLAN_QUIET", "1")
    assert "purchase=spot quiet=True" in answer(capsys, "demo")
    typed = answer(capsys, "demo", "--on-demand", "--no-quiet")
    assert "purchase=on-demand quiet=False" in typed


def test_origin_says_where_each_value_comes_from(capsys, monkeypatch) -> None:
    answer(capsys, "config", "set", "provider", "aws")
    monkeypatch.setenv("GPUPLAN_TOP", "4")
    path = settings.config_path()
    assert answer(capsys, "config", "list", "--origin").splitlines() == [
        f"provider = aws\tfile {path}",
        "top = 4\tenvironment GPUPLAN_TOP",
    ]
    assert answer(capsys, "config", "get", "quiet", "--origin") == (
        "false\tdefault of the option\n"
    )


def test_unset_removes_one_setting_and_keeps_comments(capsys) -> None:
    path = settings.config_path()
    path.parent.mkdir(parents=True)
    path.write_text('# ours\ntop = 3\nprovider = "aws"  # for now\n')
    answer(capsys, "config", "unset", "top")
    assert path.read_text() == '# ours\nprovider = "aws"  # for now\n'
    assert "Did you mean provider?" in refusal(capsys, "config", "unset", "providr")


def test_set_replaces_a_value_that_spans_lines(capsys) -> None:
    path = settings.config_path()
    path.parent.mkdir(parents=True)
    path.write_text('region = [\n  "a",\n  "b",\n]\ntop = 3\n')
    answer(capsys, "config", "set", "region", "c")
    assert settings.read() == {"top": 3, "region": ["c"]}


@pytest.mark.parametrize("value", ["team 😀", "de\x7fl", 'a "quoted" \\ one', "Größe", "tab\there"])
def test_any_text_is_read_as_it_was_set(capsys, value: str) -> None:
    answer(capsys, "config", "set", "provider", value)
    answer(capsys, "config", "set", "top", "5")
    assert answer(capsys, "config", "get", "provider") == f"{value}\n"
    assert settings.read() == {"provider": value, "top": 5}


def test_a_file_from_an_editor_of_windows_is_read(capsys) -> None:
    path = settings.config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'\xef\xbb\xbfprovider = "aws"\r\n# kept\r\n')
    assert answer(capsys, "config", "get", "provider") == "aws\n"
    answer(capsys, "config", "set", "top", "5")
    assert settings.read() == {"provider": "aws", "top": 5}
    assert "# kept" in path.read_text(encoding="utf-8")


def test_settings_that_are_set_at_the_same_time_are_all_kept() -> None:
    wanted = {f"key-{number}": number for number in range(24)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda one: settings.write(*one), wanted.items()))
    assert settings.read() == wanted


def test_a_setting_no_command_has_is_refused_with_the_closest(capsys) -> None:
    assert "Did you mean provider?" in refusal(capsys, "config", "set", "providr", "aws")
    assert not settings.config_path().exists()


def test_a_misspelt_setting_in_the_file_is_pointed_out(capsys) -> None:
    settings.write("providr", "aws")
    assert run(["config", "list"]) == 0
    assert "Did you mean provider?" in capsys.readouterr().err


def test_a_value_the_option_does_not_take_is_refused_before_it_is_stored(capsys) -> None:
    error = refusal(capsys, "config", "set", "top", "many")
    assert "top = 'many'" in error
    assert "not a valid integer" in error
    assert not settings.config_path().exists()
    assert "one value" in refusal(capsys, "config", "set", "top", "1", "2")


def test_a_bad_value_in_the_environment_names_its_variable(capsys, monkeypatch) -> None:
    monkeypatch.setenv("GPUPLAN_TOP", "many")
    assert "environment GPUPLAN_TOP" in refusal(capsys, "demo")


@pytest.mark.parametrize(
    ("text", "said"),
    [("top = \n", "line 1"), ("[demo]\ntop = 3\n", "demo"), ("top: 3\n", "line 1")],
)
def test_a_malformed_file_is_one_message_with_its_place(capsys, text: str, said: str) -> None:
    path = settings.config_path()
    path.parent.mkdir(parents=True)
    path.write_text(text)
    error = refusal(capsys, "demo")
    assert str(path) in error
    assert said in error
    assert "To fix:" in error


def test_a_binary_file_is_refused(capsys) -> None:
    path = settings.config_path()
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\xff\xfe\x00")
    assert "is not TOML" in refusal(capsys, "demo")


def test_a_folder_in_place_of_the_file_is_refused(capsys) -> None:
    settings.config_path().mkdir(parents=True)
    assert "cannot be read" in refusal(capsys, "demo")


def test_a_folder_that_may_not_be_written_is_one_message(
    home_without_privileges: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = home_without_privileges / "config"
    config.mkdir()
    kept = config / "config.toml"
    kept.write_text('provider = "aws"\n')
    config.chmod(0o555)
    try:
        assert run(["config", "set", "top", "3"]) == 1
    finally:
        config.chmod(0o755)
    assert "cannot be written: Permission denied" in capsys.readouterr().err
    assert kept.read_text() == 'provider = "aws"\n'
    assert [file.name for file in config.iterdir()] == ["config.toml"]


def test_write_refuses_to_touch_a_file_it_cannot_read() -> None:
    path = settings.config_path()
    path.parent.mkdir(parents=True)
    path.write_text("not toml")
    with pytest.raises(UsageError):
        settings.write("top", 3)
    assert path.read_text() == "not toml"


@pytest.mark.parametrize("where", ["settings", "typed"])
def test_a_name_that_is_refused_and_was_not_typed_is_said_to_be_a_setting(
    capsys, monkeypatch, where
) -> None:
    from gpuplan.cli.commands.offers import command as offers

    monkeypatch.setitem(main_module.COMMANDS, "offers", "")
    monkeypatch.setattr(main_module.LazyGroup, "get_command", lambda self, context, name: offers)
    typed = ("--provider", "nope") if where == "typed" else ()
    if not typed:
        settings.write("provider", "nope")
    said = refusal(capsys, "offers", *typed)
    assert "There is no provider 'nope'." in said
    assert ("provider is from your settings (gpuplan config list)." in said) is not typed
