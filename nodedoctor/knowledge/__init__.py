"""Facts about the world as data: each row with its source, and the small readers for them."""
