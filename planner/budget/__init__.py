"""A project's money: experiments → runs → lines by month, ranges, limits and funding. Pure."""
