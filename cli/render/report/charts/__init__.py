"""The charts of a report, as specifications and as SVG."""
