"""Electricity and carbon of a run: power of a node, kWh of a building, kg CO2e of a grid."""
