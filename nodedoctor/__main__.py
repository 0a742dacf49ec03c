"""`python -m nodedoctor`."""

import sys

from nodedoctor.cli.main import main

sys.exit(main())
