"""What the world offers: accelerators, instances, links, offers, regions, aliases."""
