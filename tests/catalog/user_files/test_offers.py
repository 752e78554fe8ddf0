from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.listing.ownership import usd_per_used_hour
from gpuplan.catalog.snapshot import load_catalogue

TEMPLATES = Path(__file__).parents[3] / "docs" / "templates"

GOOD = """\
offers:
  - provider: lab
    instance: node
    accelerator: h100
    accelerators_per_node: 8
    usd_per_hour: 20
"""


def write(tmp_path, text, name="mine.yaml"):
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


def load(tmp_path, text, name="mine.yaml"):
    return load_catalogue(write(tmp_path, text, name))


@pytest.mark.parametrize("path", sorted(TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_every_template_loads_and_is_priced(path):
    catalogue = load_catalogue(path)
    mine = [offer for offer in catalogue.offers if offer.is_user]
    assert mine
    for offer in mine:
        assert offer.on_demand_usd_per_hour is not None
        assert offer.on_demand_usd_per_hour > 0
        assert catalogue.accelerator_of(offer) is not None
        assert catalogue.instance_of(offer) is not None
        assert offer.provider in catalogue.providers


def test_a_stated_node_becomes_si_rows():
    catalogue = load_catalogue(TEMPLATES / "colocated.yaml")
    offer = catalogue.offers[-1]
    instance = catalogue.instances["my-colo", "hgx-h100-8"]
    assert offer.on_demand_usd_per_hour == Decimal("17.60")
    assert offer.price_basis == "user"
    assert instance.memory_bytes == 2048 * 2**30
    assert instance.intra_link.bytes_per_s == 450e9
    assert instance.intra_link.switched is True
    assert instance.inter_link.bytes_per_s == 400e9
    assert instance.can_cluster
    assert catalogue.jurisdiction_of(offer) == "de"


def test_the_embedded_catalogue_is_not_touched(tmp_path):
    before = len(load_catalogue().offers)
    assert len(load(tmp_path, GOOD).offers) == before + 1
    assert len(load_catalogue().offers) == before


def test_bought_hardware_gets_its_price_from_what_it_cost():
    catalogue = load_catalogue(TEMPLATES / "bought.yaml")
    owned = catalogue.ownership["our-lab", "hgx-h100-8"]
    offer = next(o for o in catalogue.offers if o.price_basis == "owned")
    assert offer.on_demand_usd_per_hour == round(usd_per_used_hour(owned), 4)
    own = catalogue.accelerators["Prototype-1"]
    assert own.peak_flops == {"fp32": 60e12, "bf16": 500e12}


def test_a_list_alone_is_a_list_of_offers(tmp_path):
    bare = GOOD.partition("\n")[2]
    assert load(tmp_path, bare).instances["lab", "node"].accelerators == 8


def test_csv_says_the_same_as_yaml():
    catalogue = load_catalogue(TEMPLATES / "offers.csv")
    assert catalogue.instances["my-colo", "l40s-8"].inter_link.bytes_per_s == 25e9
    assert ("our-lab", "a100-8") in catalogue.ownership


def test_without_links_topology_is_unknown_and_one_node_is_planned(tmp_path):
    instance = load(tmp_path, GOOD).instances["lab", "node"]
    assert instance.inter_link.bytes_per_s is None
    assert not instance.can_cluster


def test_a_contract_price_replaces_the_list_price_and_keeps_the_topology(tmp_path):
    text = """\
offers:
  - {provider: aws, region: us-east-1, instance: p5.48xlarge, usd_per_hour: 31.2}
"""
    catalogue = load(tmp_path, text)
    found = [
        offer
        for offer in catalogue.offers
        if (offer.provider, offer.region, offer.instance_type)
        == ("aws", "us-east-1", "p5.48xlarge")
    ]
    assert [offer.on_demand_usd_per_hour for offer in found] == [Decimal("31.2")]
    assert found[0].launchable
    assert catalogue.instances["aws", "p5.48xlarge"].inter_link.bytes_per_s == 400e9


@pytest.mark.parametrize(
    ("machine", "domain"),
    [
        ("instance: ct6e-standard-4t", 256),
        ("instance: ct6e-standard-4t, accelerators_per_node: 8", None),
        ("instance: my-pod, accelerator: TPU-v6e, accelerators_per_node: 4", 256),
        ("instance: my-pod, accelerator: TPU-v6e, accelerators_per_node: 8", None),
        ("instance: ct6e-standard-4t, link_domain_accelerators: 16", 16),
    ],
)
def test_tpu_hosts_form_slices_as_the_catalogue_s_do(tmp_path, machine, domain):
    text = f"offers:\n  - {{provider: gcp, region: us-east5, {machine}, usd_per_hour: 3}}\n"
    catalogue = load(tmp_path, text)
    (mine,) = (one for one in catalogue.instances.values() if one.basis == "user")
    assert mine.link_domain_accelerators == domain


def bad(old, new):
    assert old in GOOD
    return GOOD.replace(old, new)


BOMB = "a: &a [x]\nb: &b [*a,*a]\noffers: *b\n"
BAD = [
    (bad("usd_per_hour: 20", "usd_per_hour: .nan"), ":6: usd_per_hour is '.nan', not a number"),
    (bad("usd_per_hour: 20", "usd_per_hour: NaN"), ":6: usd_per_hour is 'NaN', not a number"),
    (bad("usd_per_hour: 20", "usd_per_hour: -3"), ":6: usd_per_hour is -3; it must be at least 0"),
    (bad("usd_per_hour: 20", "usd_per_hour: 0"), ":6: usd_per_hour is 0; it must be above 0"),
    (bad("usd_per_hour: 20", "usd_per_hour: cheap"), ":6: usd_per_hour is 'cheap', not a number"),
    (bad("usd_per_hour: 20", "usd_per_hour: 1e999"), ":6: usd_per_hour is '1e999', not a number"),
    (bad("usd_per_hour: 20", "usd_per_hour: [1]"), ":6: usd_per_hour must be one value"),
    (bad("usd_per_hour", "usd_per_hours"), ":6: .*no field 'usd_per_hours'.*usd_per_hour"),
    (bad("h100", "h1000"), ":4: There is no accelerator 'h1000'.*Did you mean H100"),
    (bad("h100", "A100"), ":4: 'A100' could be any of"),
    (bad("_node: 8", "_node: 0"), ":5: accelerators_per_node is 0; it must be above 0"),
    (bad("_node: 8", "_node: 0.5"), ":5: .*give whole devices"),
    (bad("    accelerators_per_node: 8\n", ""), ":2: an offer lacks accelerators_per_node"),
    (bad("    instance: node\n", ""), ":2: an offer lacks instance"),
    (GOOD + GOOD.partition("\n")[2], ":7: node of lab in local is on line 2 already"),
    (GOOD + "    usd_per_hour: 3\n", ":7: 'usd_per_hour' is there twice"),
    (GOOD + "    spot_usd_per_hour: 30\n", ":7: spot_usd_per_hour 30 is above usd_per_hour 20"),
    (GOOD + "    price_date: yesterday\n", ":7: price_date is 'yesterday'; give a date"),
    (GOOD + "    country: Germany\n", ":7: country is 'Germany'; give one country's two letters"),
    (GOOD + "    intra_link: fast\n", ":7: intra_link must be a map"),
    (GOOD + "    inter_link: {gbit_per_s: -1}\n", ":7: gbit_per_s is -1; it must be above 0"),
    (GOOD + "    inter_link: {gbits: 1}\n", ":7: .*no field 'gbits'"),
    (GOOD + "    intra_link: {switched: maybe}\n", ":7: switched is 'maybe'; give yes or no"),
    (GOOD + "    owned: {capex_usd: 5}\n", "owned lacks lifetime_years, power_w, .* and utilis"),
    (GOOD + "accelerators:\n  - name: T4\n    memory_gib: 1\n", "T4 has no peak rate"),
    (GOOD + "offer: []\n", "no field 'offer'.*Did you mean offers"),
    ("offers: []\n", "there are no offers in it"),
    ("", "the file must be a map with `offers:`"),
    ("- a\n", ":1: an offer must be a map of names and values"),
    (
        "- {provider: lab, gpu: H100, count: 8, price: 20}\n",
        ":1: an offer has no field 'gpu', 'count' or 'price', and lacks instance, accelerator and "
        "accelerators_per_node. For 'gpu' write accelerator.",
    ),
    ("offers: {a: 1}\n", ":1: offers must be a list"),
    ("offers:\n  - a: [1\n", "expected"),
    ("offers:\n\t- x\n", ":2: "),
    ("offers: !!python/object/apply:os.system ['true']\n", ":1: the tag .* is not allowed"),
    (bad("instance: node", 'instance: "\\e[31mred"'), ":3: instance is .*; plain text only"),
    (BOMB, ":1: anchors and aliases .* not allowed"),
    ("offers: " + "[" * 5000 + "]" * 5000, "nesting deeper than 12 levels is not allowed"),
    ("offers: []\n---\noffers: []\n", "a second document is not allowed"),
    ("# " + "x" * 300_000, "larger than 256 KiB"),
    ("offers: \x00\n", "mine.yaml:1: "),
]


@pytest.mark.parametrize(("text", "message"), BAD, ids=range(len(BAD)))
def test_bad_yaml_is_one_clear_message_with_file_and_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message) as caught:
        load(tmp_path, text)
    assert "mine.yaml" in caught.value.message
    assert "\n" not in caught.value.message


OWNED = """\
offers:
  - instance: node
    accelerator: L4
    accelerators_per_node: 1
    owned:
      capex_usd: 5000
      lifetime_years: 3
      power_w: 400
      usd_per_kwh: 0.2
      pue: 1.2
      utilisation: 0.5
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("pue: 1.2", "pue: 0.8", ":10: pue is 0.8; it must be at least 1"),
        ("utilisation: 0.5", "utilisation: 50", ":11: utilisation is 50; it must be at most 1"),
        ("lifetime_years: 3", "lifetime_years: 0", ":7: lifetime_years is 0; it must be above 0"),
        ("usd_per_kwh: 0.2", "usd_per_kwh: nan", ":9: usd_per_kwh is 'nan', not a number"),
        ("      power_w: 400\n", "", "owned lacks power_w"),
        ("pue: 1.2", "pue: 1.2\n      residual_usd: 6000", "residual_usd 6000 is not below"),
        ("    owned:", "    usd_per_hour: 2\n    owned:", "usd_per_hour and owned are both given"),
    ],
)
def test_bad_ownership_is_one_clear_message(tmp_path, old, new, message):
    assert old in OWNED
    with pytest.raises(UsageError, match=message):
        load(tmp_path, OWNED.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance,accelerator\nx\n", "mine.csv:2: 1 cells under 2 columns"),
        ("instance,instance\nx,y\n", "mine.csv:1: a column has no name, or one is there twice"),
        ('instance\n"x\n', "mine.csv:2: "),
        (
            "instance,accelerator,accelerators_per_node,usd_per_hour\nn,L4,1,-2\n",
            ":2: .*at least 0",
        ),
        ("instance,cost\nn,2\n", "mine.csv:2: "),
    ],
)
def test_bad_csv_is_one_clear_message(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        load(tmp_path, text, "mine.csv")


def test_unreadable_files(tmp_path):
    with pytest.raises(UsageError, match="Cannot read .*No such file"):
        load_catalogue(tmp_path / "absent.yaml")
    with pytest.raises(UsageError, match="Cannot read"):
        load_catalogue(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"offers:\n  - instance: caf\xe9\n")
    with pytest.raises(UsageError, match="latin.yaml:2: not UTF-8"):
        load_catalogue(path)


def test_an_accelerator_of_the_catalogue_cannot_be_redefined(tmp_path):
    text = GOOD + (
        "accelerators:\n  - name: T4\n    memory_gib: 1\n"
        "    memory_bandwidth_gb_per_s: 1\n    bf16_tflops: 9\n"
    )
    with pytest.raises(UsageError, match=":8: T4 is in the catalogue already"):
        load(tmp_path, text)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    cut=st.integers(0, len(GOOD)),
    junk=st.text(alphabet=st.sampled_from("[]{}:-#&*!|>%@`'\"\t\n ,?~0aé\x00\x85"), max_size=12),
    suffix=st.sampled_from([".yaml", ".csv"]),
)
def test_whatever_is_in_the_file_it_loads_or_is_one_message(tmp_path, cut, junk, suffix):
    try:
        load(tmp_path, GOOD[:cut] + junk + GOOD[cut:], f"mine{suffix}")
    except UsageError as error:
        assert f"mine{suffix}" in error.message
        assert "\n" not in error.message


def test_a_device_alone_is_enough_to_ask_what_fits_on_it_and_to_calibrate_it(tmp_path):
    """`calibrate --name MY-CPU --offers mine.yaml` wanted an offer of it."""
    described = (
        "accelerators:\n  - name: MY-CPU\n    vendor: ACME\n    memory_gib: 8\n"
        "    memory_bandwidth_gb_per_s: 20\n    fp32_tflops: 0.1\n"
    )
    catalogue = load(tmp_path, described)
    assert catalogue.accelerators["MY-CPU"].peak_flops["fp32"] == pytest.approx(1e11)
    assert not [offer for offer in catalogue.offers if offer.is_user]
