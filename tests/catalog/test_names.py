import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.names import (
    MADE_UP_END,
    aliases_of,
    assumption_about,
    instance_names,
    listed_instance,
    match_accelerators,
    resolve_accelerator,
    resolve_provider,
    resolve_region,
    seller_name,
    short_accelerator,
    shown_instance,
)
from gpuplan.catalog.snapshot import load_catalogue


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("H100-80GB-SXM", "H100-80GB-SXM"),
        ("h100", "H100-80GB-SXM"),
        ("  NVIDIA H100 80GB HBM3 ", "H100-80GB-SXM"),
        ("nvidia_h100_80gb", "H100-80GB-SXM"),
        ("a100-40gb", "A100-40GB-SXM"),
        ("A100-80GB", "A100-80GB-SXM"),
        ("Tesla T4", "T4"),
        ("RTX 4090", "RTX-4090"),
        ("TPU v5e", "TPU-v5e"),
        ("Trillium", "TPU-v6e"),
        ("b200", "B200-180GB-SXM"),
    ],
)
def test_spellings_resolve_in_any_case(given, canonical):
    assert resolve_accelerator(given) == canonical
    assert resolve_accelerator(given.upper()) == canonical


def test_every_canonical_name_and_every_alias_resolves_or_says_why_not():
    for name in load_catalogue().accelerators:
        if not name.startswith("CPU-"):
            assert resolve_accelerator(name) == name
            assert match_accelerators(name) == (name,)
    for alias in aliases_of("A100-80GB-SXM"):
        try:
            assert resolve_accelerator(alias) == "A100-80GB-SXM"
        except UsageError as error:
            assert "could be any of" in error.message


def test_bare_a100_is_refused_with_its_candidates():
    with pytest.raises(UsageError, match="could be any of") as caught:
        resolve_accelerator("A100")
    assert "A100-40GB-SXM" in caught.value.message
    assert "A100-80GB-PCIe" in caught.value.message


def test_a_filter_takes_a_family_as_all_its_members():
    assert match_accelerators("A100") == (
        "A100-40GB-PCIe",
        "A100-40GB-SXM",
        "A100-80GB-PCIe",
        "A100-80GB-SXM",
    )
    assert match_accelerators("L4") == ("L4",)
    assert "A10G" not in match_accelerators("A10")


@pytest.mark.parametrize("function", [resolve_accelerator, match_accelerators])
def test_a_typo_is_answered_with_the_closest_name(function):
    with pytest.raises(UsageError, match="Did you mean.*MI300X"):
        function("MI300")


def test_a_name_that_is_not_one_device_says_so():
    with pytest.raises(UsageError, match="laptop part"):
        resolve_accelerator("GeForce_RTX_3080_Laptop_GPU")


def test_host_processors_are_no_accelerators():
    with pytest.raises(UsageError):
        resolve_accelerator("CPU-2x-EPYC-9R14")


def test_what_a_spelling_assumes_is_told():
    assert assumption_about("H100") == "SXM assumed"
    assert assumption_about("H100-80GB-SXM") is None


def test_providers_and_regions():
    assert resolve_provider("AWS") == "aws"
    assert resolve_provider("google") == "gcp"
    assert resolve_region("US-EAST-1") == "us-east-1"
    with pytest.raises(UsageError, match="Did you mean lambda"):
        resolve_provider("lamda")
    with pytest.raises(UsageError, match="region of aws, not of gcp. Did you mean us-east1"):
        resolve_region("us-east-1", providers=["gcp"])
    with pytest.raises(
        UsageError, match=r"region of gcp and nebius, not of aws or azure\."
    ) as error:
        resolve_region("us-central1", providers=["azure", "aws"])
    assert error.value.fix is not None
    assert error.value.fix.startswith(
        "give --provider gcp, or a region of aws or azure (af-south-1, "
    )
    with pytest.raises(UsageError) as error:
        resolve_region("us-east-1", providers=["lambda"])
    assert error.value.fix == "give --provider aws, or a region of lambda (global)."
    assert resolve_region("us-central1", providers=["aws", "gcp"]) == "us-central1"


def test_a_short_name_means_the_same_device():
    names = [name for name in load_catalogue().accelerators if not name.startswith("CPU-")]
    short = {name: short_accelerator(name) for name in names}
    assert all(resolve_accelerator(short[name]) == name for name in names)
    assert len(set(short.values())) == len(names)
    assert short["H100-80GB-SXM"] == "H100" and short["H100-94GB-NVL"] == "H100-94GB-NVL"
    assert short["RTX-4000-Ada"] == "RTX-4000-Ada", "only form factor and memory are left out"
    assert short_accelerator("Mine-80GB") == "Mine-80GB", "of which the catalogue knows nothing"


@pytest.mark.parametrize("name", ["p5.48xlarge", "P5.48xlarge", "ND96isr_H100_v5"])
def test_an_instance_type_that_is_given_for_an_accelerator_is_told_what_it_has(name):
    for read in (resolve_accelerator, match_accelerators):
        with pytest.raises(UsageError, match="is an instance type of a.* with 8 × H100") as caught:  # noqa: RUF001
            read(name)
        fix = caught.value.fix or ""
        assert "--instance" in fix and "H100-80GB-SXM:8" in fix


def test_a_small_sellers_type_is_shown_by_the_name_of_its_pages_or_by_accelerator():
    for provider, name in load_catalogue().instances:
        shown = listed_instance(provider, name)
        assert not shown.endswith(MADE_UP_END), (provider, name)
        assert not shown.startswith(f"{provider}-"), (provider, name)
        own = seller_name(provider, name)
        assert shown == own or (own is None and shown.endswith(" (by accelerator)"))
        assert {name.casefold(), shown.casefold()} <= instance_names(provider, name)


def test_what_a_user_describes_keeps_its_name():
    assert shown_instance("ours", "ours-h100-box") == "ours-h100-box"
