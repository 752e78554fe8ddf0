"""Charts as SVG by vl-convert, on this machine: short, without a network, for one page together.

vl-convert is in the extra `report`; without it a page has tables and bars alone.
"""

from __future__ import annotations

import importlib.util
import re
from functools import cache
from typing import Any
from xml.etree import ElementTree

SVG = "http://www.w3.org/2000/svg"
DEFAULTS = {"opacity": "1", "stroke-width": "1", "fill-opacity": "1", "stroke-opacity": "1"}
DROPPED = ("pointer-events", "font-family", "class", "role", "stroke-miterlimit")
"""The image is one for a screen reader, its table says the rest; the page has the font."""
_NUMBER = re.compile(r"-?\d+\.\d{2,}")


@cache
def can_draw() -> bool:
    """Return whether the extra `report` is installed."""
    return importlib.util.find_spec("vl_convert") is not None


def as_svg(spec: dict[str, Any], label: str) -> str:
    """Return a Vega-Lite specification as an <svg> element that fills the width it is given.

    Args:
        spec: The specification, with its data inside: no address is ever read.
        label: What it shows, for a screen reader.
    """
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    ElementTree.register_namespace("", SVG)
    root = ElementTree.fromstring(drawn)
    for element in [*root.iter()]:
        _shorten(element)
    _drop_empty(root)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    width = float(root.attrib["viewBox"].split()[2])
    root.attrib |= {"role": "img", "aria-label": label, "style": f"max-width:{width * 1.3:.0f}px"}
    return ElementTree.tostring(root, encoding="unicode")


def _shorten(element: ElementTree.Element) -> None:
    """Drop what a browser takes anyway, and decimals below a hundredth of a pixel."""
    for name, value in [*element.attrib.items()]:
        if name in DROPPED or name.startswith("aria-") or DEFAULTS.get(name) == value:
            del element.attrib[name]
        elif name in ("d", "transform", "x2", "y2", "x", "y"):
            element.attrib[name] = _NUMBER.sub(_rounded, value)


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found.group()):.2f}".rstrip("0").rstrip(".")


def _drop_empty(element: ElementTree.Element) -> None:
    """Remove groups without anything in them and paths that draw nothing."""
    for child in [*element]:
        _drop_empty(child)
        tag = child.tag.rpartition("}")[2]
        is_nothing = tag == "path" and child.attrib.get("d", "") in ("", "M0,0h0v0h0Z")
        if is_nothing or child.attrib.get("display") == "none" or (tag == "g" and not len(child)):
            element.remove(child)
