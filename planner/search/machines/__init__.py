"""Which machines a question may rent, at which price, and what runs on them."""
