"""Spot machines until a deadline comes near, on-demand ones from then on."""
