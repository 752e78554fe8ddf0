import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.cli.main import run

GOLDEN = Path(__file__).parent / "golden"
TEMPLATES = Path(__file__).parents[3] / "docs" / "templates"
COLOCATED = str(TEMPLATES / "colocated.yaml")


@pytest.fixture
def gpuplan(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")

    def call(*words, code=0):
        assert run(list(words)) == code
        return capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("offers-h100.txt", ["offers", "--accelerator", "H100:8"]),
        ("offers-spot.txt", ["offers", "--accelerator", "L4", "--spot", "--jurisdiction", "eu"]),
        ("offers-unknown.txt", ["offers", "--provider", "neevcloud,nvidia-dgx-cloud"]),
        ("offers-bought.txt", ["offers", "--provider", "our-lab", "--offers", "bought.yaml"]),
        ("offers-a100.md", ["offers", "--accelerator=A100-80GB", "--top=5", "--format=markdown"]),
        ("offers-gaudi.json", ["offers", "--accelerator", "Gaudi1", "--format", "json"]),
        ("gpus.txt", ["gpus"]),
        ("gpus-h100.txt", ["gpus", "H100-80GB-SXM"]),
        ("gpus-unspecified.txt", ["gpus", "RTX-5080"]),
    ],
)
def test_golden_outputs(gpuplan, golden, monkeypatch, name, words):
    monkeypatch.chdir(TEMPLATES)
    golden(GOLDEN / name, gpuplan(*words).out)


@pytest.mark.parametrize("columns", [60, 72, 80, 100, 120, 160])
@pytest.mark.parametrize("words", [["gpus"], ["offers"], ["offers", "--accelerator", "H100:8"]])
def test_no_line_is_wider_than_the_screen_and_no_number_is_cut(
    gpuplan, monkeypatch, columns, words
):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = gpuplan(*words).out.splitlines()
    assert max(map(len, lines)) <= columns
    rows = lines[1 : lines.index("")]
    assert not any(cell.endswith("…") and cell[0].isdigit() for r in rows for cell in r.split()[3:])


@pytest.mark.parametrize("columns", [60, 80])
def test_the_sellers_of_a_device_fit_on_a_narrow_screen(gpuplan, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = gpuplan("gpus", "H100").out.splitlines()
    assert max(map(len, lines[lines.index("") :])) <= columns


def test_numbers_stand_right_aligned(gpuplan):
    lines = gpuplan("offers", "--accelerator", "H100:8", "--top", "12").out.splitlines()
    end = lines[0].index("$/h") + len("$/h")
    assert all(line[end - 1].isdigit() and line[end : end + 2] == "  " for line in lines[1:13])


def test_in_a_pipe_nothing_is_cut_or_styled(gpuplan, monkeypatch):
    monkeypatch.delenv("COLUMNS")
    out = gpuplan("offers").out
    assert "…" not in out
    assert "\x1b" not in out


def test_json_and_csv_hold_every_offer_and_agree(gpuplan):
    listed = json.loads(gpuplan("offers", "--all", "--format", "json").out)
    rows = list(csv.DictReader(io.StringIO(gpuplan("offers", "--all", "--format", "csv").out)))
    assert len(listed["offers"]) == len(rows) == listed["matched"] == len(load_catalogue().offers)
    assert listed["unpriced"] == 504
    assert listed["schema_version"] == "1.0"
    assert [row["instance_type"] for row in rows] == [
        offer["instance_type"] for offer in listed["offers"]
    ]


def test_unknown_is_null_in_json_and_empty_in_csv_never_zero(gpuplan):
    words = ["offers", "--provider", "neevcloud", "--format"]
    offer = json.loads(gpuplan(*words, "json").out)["offers"][0]
    assert offer["on_demand_usd_per_hour"] is None
    assert offer["jurisdiction"] is None
    row = next(csv.DictReader(io.StringIO(gpuplan(*words, "csv").out)))
    assert row["on_demand_usd_per_hour"] == ""


def test_csv_of_nested_values_has_one_column_each(gpuplan):
    rows = list(csv.DictReader(io.StringIO(gpuplan("gpus", "--format", "csv").out)))
    by_name = {row["name"]: row for row in rows}
    assert "peak_flops" not in rows[0]
    assert float(by_name["H100-80GB-SXM"]["peak_flops.bf16"]) == 989.4e12
    assert by_name["V100-16GB-SXM2"]["peak_flops.bf16"] == ""
    assert by_name["RTX-5080"]["memory_bytes"] == ""


def test_marketplaces_and_slices_come_when_named_or_asked_for(gpuplan):
    def providers(*words):
        out = gpuplan("offers", "--format", "json", *words).out
        return {offer["provider"] for offer in json.loads(out)["offers"]}

    assert "vast-ai" not in providers("--accelerator", "H100")
    assert "vast-ai" in providers("--accelerator", "H100", "--provider", "all")
    assert "vast-ai" in providers("--accelerator", "H100", "--all")
    assert providers("--provider", "vast-ai") == {"vast-ai"}
    assert providers("--accelerator", "RTX-5080") == {"salad"}
    assert "g6f.large" in gpuplan("offers", "--instance", "g6f.large").out


def test_launchable_keeps_what_launch_reaches(gpuplan):
    out = gpuplan("offers", "--launchable", "--format", "json").out
    offers = json.loads(out)["offers"]
    assert all(offer["launchable"] for offer in offers)
    assert {"aws", "azure", "gcp"} <= {offer["provider"] for offer in offers}


def test_cheapest_first_by_either_order_and_limits_hold(gpuplan):
    def prices(key, *words):
        out = gpuplan("offers", "--on-demand", "--format", "json", *words).out
        return [offer[key] for offer in json.loads(out)["offers"]]

    by_one = prices("on_demand_usd_per_accelerator_hour")
    by_node = prices("on_demand_usd_per_hour", "--sort", "price")
    assert by_one == sorted(by_one)
    assert by_node == sorted(by_node)
    assert max(prices("on_demand_usd_per_hour", "--max-price", "$2")) <= 2
    assert len(prices("on_demand_usd_per_hour", "--top", "7")) == 7


def test_own_offers_are_listed_beside_the_clouds(gpuplan):
    out = gpuplan("offers", "--accelerator", "H100:8", "--offers", COLOCATED).out
    assert "my-colo" in out
    assert "verda" in out
    own = gpuplan("gpus", "Prototype-1", "--offers", str(TEMPLATES / "bought.yaml")).out
    assert "500 TFLOP/s dense" in own


def test_out_file_is_written_whole_and_names_its_format(gpuplan, tmp_path):
    target = tmp_path / "offers.csv"
    assert gpuplan("offers", "--provider", "lambda", "--out-file", str(target)).out == ""
    assert target.read_text("utf-8").startswith("provider,region,jurisdiction,")
    gpuplan("gpus", "--out-file", str(tmp_path / "gpus.json"))
    assert json.loads((tmp_path / "gpus.json").read_text("utf-8"))["accelerators"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpus.json", "offers.csv"]


def test_gpus_json_lists_every_accelerator_and_no_processor(gpuplan):
    listed = json.loads(gpuplan("gpus", "--format", "json").out)["accelerators"]
    names = [line["name"] for line in listed]
    assert len(names) == len(set(names)) == 90 + 28
    assert not any(name.startswith("CPU-") for name in names)
    h100 = next(line for line in listed if line["name"] == "H100-80GB-SXM")
    assert h100["peak_flops"]["bf16"] == 989.4e12
    unspecified = next(line for line in listed if line["name"] == "RTX-5080")
    assert unspecified["memory_bytes"] is None
    assert unspecified["peak_flops"] is None


def test_a_device_that_needs_a_port_says_to_what(gpuplan):
    listed = json.loads(gpuplan("gpus", "--format", "json").out)["accelerators"]
    ports = {line["name"]: line["port_to"] for line in listed}
    assert ports["Gaudi2"] == "Gaudi's torch" and ports["TPU-v5e"] == "XLA"
    assert ports["H100-80GB-SXM"] is None and ports["RTX-5080"] is None
    xla = {line["name"] for line in listed if line["needs_xla"]}
    assert xla == {name for name, port in ports.items() if port == "XLA"}
    text = " ".join(gpuplan("gpus").out.split())
    assert "to XLA on TPU, Trainium, Inferentia; to Gaudi's torch on Gaudi." in text
    assert "needs a port to Gaudi's torch" in gpuplan("gpus", "gaudi2").out
    assert "needs a port to XLA" in gpuplan("gpus", "TPU-v5e").out
    assert "port" not in gpuplan("gpus", "H100-80GB-SXM").out


def test_a_sheet_says_what_a_spelling_assumes(gpuplan):
    said = gpuplan("gpus", "h100")
    assert said.err == "h100 is taken as H100-80GB-SXM: SXM assumed.\n"
    assert said.out.startswith("H100-80GB-SXM\n")
    assert gpuplan("gpus", "h100", "-q").err == ""


EMPTY = ["offers", "--accelerator", "H100", "--provider", "aws", "--region", "eu-south-2"]


def test_nothing_matches_says_what_was_asked_and_what_is_nearby(gpuplan):
    said = gpuplan(*EMPTY, code=3)
    text = " ".join(said.out.split())
    assert text.startswith("No offer matches any H100, provider aws, region eu-south-2; ")
    assert "without --accelerator: " in text
    assert "without --region: " in text
    assert "cheapest aws p5.48xlarge us-east-1 ($55.04/h)" in text
    assert "without --provider" not in text, "nobody else has that region"
    assert said.err == ""


def test_nothing_matches_spot_prices_shows_spot_prices(gpuplan):
    words = ["offers", "--accelerator", "H100-80GB-SXM:8", "--provider", "aws", "--spot"]
    cheapest = json.loads(gpuplan(*words, "--format", "json").out)["offers"][0]
    text = " ".join(gpuplan(*words, "--max-price", "0.5", code=3).out.split())
    assert "8 × H100-80GB-SXM, provider aws, a known spot price, at most $0.5/h" in text
    assert f"{cheapest['region']} (${cheapest['spot_usd_per_hour']:.2f}/h)" in text


def test_nothing_matches_stays_readable_by_machines(gpuplan):
    said = gpuplan(*EMPTY, "--format", "json", code=3)
    listed = json.loads(said.out)
    assert listed["matched"] == 0
    assert listed["offers"] == []
    assert listed["asked"] == ["any H100", "provider aws", "region eu-south-2"]
    assert [near["without"] for near in listed["nearby"]] == [["accelerator"], ["region"]]
    assert all(near["matched"] > 0 and near["cheapest"] for near in listed["nearby"])
    assert said.err.startswith("No offer matches any H100")
    said = gpuplan(*EMPTY, "--format", "csv", code=3)
    assert list(csv.DictReader(io.StringIO(said.out))) == []
    assert said.err.count("\n") == 1
    assert gpuplan(*EMPTY, "--format", "csv", "-q", code=3).err == ""


@pytest.mark.parametrize(
    ("typed", "words"),
    [("eu", "eu"), ("eu27", "eu27"), ("eu27,us", "eu27, us"), ("de,fr", "de, fr")],
)
def test_a_jurisdiction_is_named_as_it_is_typed(gpuplan, typed: str, words: str):
    """It was "at, be, bg and 27 more"."""
    filters = ("--region", "me-central-1", "--jurisdiction", typed, "--format", "json")
    listed = json.loads(gpuplan("offers", *filters, code=3).out)
    assert listed["asked"] == ["region me-central-1", f"jurisdiction {words}"]


def test_a_number_that_nobody_sells_is_told_those_that_are_sold(gpuplan):
    words = ["offers", "--accelerator", "H100:3", "--provider", "aws"]
    text = " ".join(gpuplan(*words, code=3).out.split())
    assert "any H100 is sold as 1 or 8 in one instance, cheapest aws p5" in text
    assert "without --accelerator" not in text, "any other accelerator is no answer"
    listed = json.loads(gpuplan(*words, "--format", "json", code=3).out)
    assert listed["other_numbers"]["per_instance"] == [1, 8]
    assert listed["other_numbers"]["of"] == "any H100"
    eight = json.loads(gpuplan("offers", "--accelerator", "H100:8", "--format", "json").out)
    assert eight["other_numbers"] is None


def test_wishes_are_dropped_two_at_a_time_only_where_one_is_not_enough(gpuplan):
    words = ["offers", "--instance", "p4d.24xlarge", "--provider", "gcp", "--accelerator", "L4:7"]
    nearby = json.loads(gpuplan(*words, "--format", "json", code=3).out)["nearby"]
    assert [near["without"] for near in nearby] == [
        ["accelerator", "provider"],
        ["accelerator", "instance"],
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpus", "H10O"], "There is no accelerator 'H10O'. Did you mean H100?"),
        (["offers", "--accelerator", "8xH100"], "a count stands behind its name"),
        (["offers", "--accelerator", "H100x8"], "write H100:8, or H100 where"),
        (["offers", "--accelerator", "RTX 4090 x 2"], "write RTX 4090:2, or RTX 4090 where"),
        (["offers", "--accelerator", "H1000"], "There is no accelerator 'H1000'. Did you mean"),
        (["offers", "--accelerator", "H100:0"], "asks for '0' accelerators"),
        (["offers", "--provider", "asw"], "There is no provider 'asw'. Did you mean aws"),
        (["offers", "--region", "us-est-1"], "There is no region 'us-est-1' in the catalogue. Did"),
        (["offers", "--jurisdiction", "europe"], "There is no jurisdiction 'europe'"),
        (["offers", "--instance", "p5.48"], "There is no instance type 'p5.48'. Did you mean"),
        (["offers", "--instance", "b200-marketplace"], "could be any of akash-b200-marketplace"),
        (["offers", "--instance", "H100:8"], "it is an accelerator. To fix: Give it as an"),
        (["offers", "--accelerator", "p5.48xlarge"], "is an instance type of aws with 8"),
        (["offers", "--max-price", "-1"], "not above zero"),
        (["offers", "--max-price", "nan"], "not above zero"),
        (["offers", "--top", "0"], "--top"),
        (["offers", "--sort", "pric"], "Did you mean price"),
        (["offers", "--format", "jsn"], "Did you mean json"),
        (["offers", "--offers", "absent.yaml"], "Cannot read absent.yaml"),
        (["offers", "--out-file", "no/such/folder/x.csv"], "Cannot write no/such/folder/x.csv"),
    ],
)
def test_bad_words_end_in_one_message_and_exit_code_2(gpuplan, words, message):
    said = gpuplan(*words, code=2)
    assert message in " ".join(said.err.split())
    assert said.out == ""
    assert "Traceback" not in said.err


def test_neither_command_imports_torch_or_an_sdk():
    code = (
        "import sys; from gpuplan.cli.main import run; run(['offers', '--top', '1']);"
        "heavy = ('torch', 'numpy', 'yaml', 'sqlalchemy', 'boto3', 'sky');"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_a_name_that_several_have_lists_these(capsys) -> None:
    assert run(["gpus", "A100", "--format", "csv"]) == 0
    names = [row["name"] for row in csv.DictReader(io.StringIO(capsys.readouterr().out))]
    assert sorted(names) == [
        "A100-40GB-PCIe",
        "A100-40GB-SXM",
        "A100-80GB-PCIe",
        "A100-80GB-SXM",
    ]
    assert run(["gpus", "h100"]) == 0
    assert capsys.readouterr().out.startswith("H100-80GB-SXM"), "one is meant by it, and is shown"


def test_an_instance_type_may_be_typed_as_a_narrow_table_shows_it(gpuplan):
    short, full = (
        gpuplan("offers", "--instance", name, "--format", "csv").out
        for name in ("nd96asr_v4", "Standard_ND96asr_v4")
    )
    assert "Standard_ND96asr_v4" in full and short == full


def test_all_offers_are_shown_where_all_are_asked_for(capsys) -> None:
    """It was refused as no number, though `estimate --top all` and `advise --top all` take it."""
    words = ["offers", "--accelerator", "H100:8", "--format", "markdown"]
    assert run(words) == 0
    few = capsys.readouterr().out.count("\n|")
    assert run([*words, "--top", "all"]) == 0
    assert capsys.readouterr().out.count("\n|") > few
