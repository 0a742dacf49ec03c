"""`python -m nodedoctor`."""

import sys

from nodedoctor.cli import main

sys.exit(main())
