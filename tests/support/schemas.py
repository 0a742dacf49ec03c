"""The schemas of our documents, each checked once: that costs as much as a document."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

import nodedoctor.report

FOLDER = Path(nodedoctor.report.__file__).with_name("schemas")


def assert_fits_schema(document: object, name: str) -> None:
    """A document has the schema of this name: report, fleet, read."""
    _validator(name).validate(document)


@cache
def _validator(name: str) -> Any:
    schema = json.loads((FOLDER / f"{name}.schema.json").read_text(encoding="utf-8"))
    kind = validator_for(schema)
    kind.check_schema(schema)
    return kind(schema)
