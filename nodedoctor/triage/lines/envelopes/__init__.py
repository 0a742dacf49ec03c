"""Collectors put every line into an envelope; each module opens one kind of them."""
