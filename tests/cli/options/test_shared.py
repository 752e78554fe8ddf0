"""What people type into options: amounts as they say them, lists, names with a near miss."""

from decimal import Decimal

import click
import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.cli.options.shared import (
    Bytes,
    Count,
    Dollars,
    Duration,
    GroupedCommand,
    LayoutText,
    ListOf,
    OneOf,
    list_option,
    option,
    parse_cluster,
)
from gpuplan.planner.plan.layout import Layout


def convert(kind: click.ParamType, text: object) -> object:
    return kind.convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("512", 512),
        ("10B", 10e9),
        ("300M", 300e6),
        ("1.5T", 1.5e12),
        ("1.28m", 1.28e6),
        ("2k", 2000),
        ("1e9", 1e9),
        ("1_000,000", 1e6),
        (".5k", 500),
        (7, 7),
    ],
)
def test_counts(text: object, number: float) -> None:
    assert convert(Count(), text) == number


@pytest.mark.parametrize("text", ["0", "-3", "0B", "ten", "1X", "", "nan", "inf", "1e999", "0x10"])
def test_a_count_above_zero_is_wanted(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(Count(), text)


def test_whole_numbers_stay_whole() -> None:
    assert convert(Count(whole=True), "2k") == 2000
    assert isinstance(convert(Count(whole=True), "2k"), int)
    with pytest.raises(click.BadParameter, match="not a whole number"):
        convert(Count(whole=True), "2.5")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("48h", 172_800), ("3d", 259_200), ("90min", 5400), ("1.5 h", 5400), ("2w", 1_209_600)],
)
def test_durations_are_in_seconds(text: str, seconds: float) -> None:
    assert convert(Duration(), text) == seconds


@pytest.mark.parametrize("text", ["48", "h", "0h", "-1d", "2 moons", "", "9999999999999h"])
def test_a_duration_needs_its_unit_and_is_above_zero(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(Duration(), text)


@pytest.mark.parametrize(("text", "seconds"), [("1", 1), ("2.5", 2.5), ("3min", 180)])
def test_a_time_limit_without_a_unit_is_in_seconds(text: str, seconds: float) -> None:
    assert convert(Duration(bare_unit="s"), text) == seconds


@pytest.mark.parametrize(("whole", "text"), [(False, "2e18"), (False, "1e400"), (True, "2T")])
def test_a_count_beyond_reason_is_called_too_large(whole: bool, text: str) -> None:
    with pytest.raises(click.BadParameter, match="too large; at most"):
        convert(Count(whole=whole), text)


@pytest.mark.parametrize(
    ("text", "usd"),
    [
        ("500", "500"),
        ("$500", "500"),
        ("1,500.50", "1500.50"),
        ("2k", "2000"),
        ("1.2M USD", "1.2e6"),
    ],
)
def test_dollars(text: str, usd: str) -> None:
    assert convert(Dollars(), text) == Decimal(usd)


@pytest.mark.parametrize("text", ["0", "-5", "five", "", "nan", "inf", "$"])
def test_dollars_above_zero_are_wanted(text: str) -> None:
    with pytest.raises(click.BadParameter):
        convert(Dollars(), text)


def test_a_word_is_one_of_a_few_and_a_near_miss_is_answered() -> None:
    kind = OneOf(("bf16-amp", "fp16-amp"))
    assert convert(kind, "BF16_AMP") == "bf16-amp"
    with pytest.raises(click.BadParameter, match="Did you mean bf16-amp"):
        convert(kind, "bf16amp")


def test_layouts() -> None:
    assert convert(LayoutText(), "fsdp16") == Layout(data=16, shard=16, zero_stage=3)
    with pytest.raises(click.BadParameter, match="write"):
        convert(LayoutText(), "fdsp16")


def test_lists_take_commas_and_repeats_once_each() -> None:
    @click.command(cls=GroupedCommand)
    @list_option("Layout", "--micro-batch", Count(whole=True))
    def command(micro_batch: tuple[int, ...]) -> tuple[int, ...]:
        return micro_batch

    words = ["--micro-batch", "1,2", "--micro-batch", "4", "--micro-batch", "2"]
    assert command.main(words, standalone_mode=False) == (1, 2, 4)
    assert command.main([], standalone_mode=False) == ()


def test_a_list_without_an_item_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="empty item"):
        convert(ListOf(), "aws,,gcp")


def test_help_lists_options_under_their_headings(capsys: pytest.CaptureFixture[str]) -> None:
    @click.command(cls=GroupedCommand)
    @option("Money", "--budget", type=Dollars(), help="So much.")
    @option("Work", "--tokens", type=Count(), help="So many.")
    def command(**_: object) -> None:
        """Do it."""

    command.main(["--help"], standalone_mode=False)
    printed = capsys.readouterr().out
    assert printed.index("Work:") < printed.index("--tokens") < printed.index("Money:")
    assert printed.index("Money:") < printed.index("--budget") < printed.index("Other:")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--gpus", "H100"], "No such option '--gpus'.\nTo fix: write --on NAME: Accelerators."),
        (["--cluster", "H100:8"], "To fix: write --on NAME: Accelerators."),
        (["--json"], "No such option '--json'.\nTo fix: write --format FORM: Output format."),
    ],
)
def test_an_option_of_another_command_is_told_its_name_here(words: list[str], said: str) -> None:
    assert refused_option(words).endswith(said)


def test_an_option_that_must_be_given_says_what_it_takes() -> None:
    @click.command(cls=GroupedCommand)
    @option("Output", "--to", type=OneOf(("torchrun", "skypilot")), required=True, help="For it.")
    def command(**_: object) -> None:
        """Do it."""

    with pytest.raises(click.MissingParameter) as caught:
        command.main([], standalone_mode=False)
    assert "Give one of torchrun, skypilot." in caught.value.format_message()


@pytest.mark.parametrize("name", ["--cloud", "--o"])
def test_an_option_that_nothing_here_is_like_is_not(name: str) -> None:
    message = refused_option([name, "aws"])  # In the words of the click that is there.
    assert name in message and "To fix" not in message


def refused_option(words: list[str]) -> str:
    """Return what a command with the options --on and --format says of these words."""

    @click.command(cls=GroupedCommand)
    @option("Machine", "--on", metavar="NAME", help="Accelerators.")
    @option("Output", "--format", metavar="FORM", help="Output format.")
    def command(**_: object) -> None:
        """Do it."""

    with pytest.raises(click.NoSuchOption) as caught:
        command.main(words, standalone_mode=False)
    return caught.value.message


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--budget"], "'--budget' requires an argument.\nTo fix: write --budget USD: So much."),
        (["-b"], "'-b' requires an argument.\nTo fix: write -b, --budget USD: So much."),
        (["--quiet=yes"], "'--quiet' does not take a value."),
    ],
)
def test_an_option_without_its_value_says_what_it_takes(words: list[str], message: str) -> None:
    short = ["-b"] if words == ["-b"] else []

    @click.command(cls=GroupedCommand)
    @option(
        "Money", *short, "--budget", type=Dollars(), metavar="USD", required=True, help="So much."
    )
    @option("Output", "--quiet", is_flag=True)
    def command(**_: object) -> None:
        """Do it."""

    with pytest.raises(click.BadOptionUsage) as caught:
        command.main(words, standalone_mode=False)
    assert caught.value.message == f"Option {message}"


def test_clusters() -> None:
    assert parse_cluster("4xp5.48xlarge") == {"nodes": (4,), "instance": ("p5.48xlarge",)}
    assert parse_cluster("2 x H100:8") == {"nodes": (2,), "accelerator": ("H100:8",)}
    assert parse_cluster("V100:8") == {"nodes": (1,), "accelerator": ("V100:8",)}
    for text in ("p5.48xlarge", "0xH100:8", "x", "", "H100", ":8", "4x"):
        with pytest.raises(UsageError, match="NxNAME"):
            parse_cluster(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("500GB", 5e11), ("1.5 tb", 1.5e12), ("2TiB", 2 * 2**40), ("1,000MB", 1e9), (7.0, 7.0)],
)
def test_sizes(text: object, size_bytes: float) -> None:
    assert convert(Bytes(), text) == size_bytes


@pytest.mark.parametrize("text", ["500", "0GB", "GB", "-1GB", "5GBs", "1.5.5TB", "9999999PB"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(click.BadParameter, match="size|above zero"):
        convert(Bytes(), text)
