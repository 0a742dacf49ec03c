"""Pure parsers: the raw text of observations becomes frozen dataclasses."""
