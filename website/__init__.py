"""The site of docs/ and lakehouse/docs/: a hook of mkdocs, and pictures that commands make."""

import ticdc_lakehouse
import ticdc_source

# The modules that users import from: the names in `__all__` are public.
PUBLIC = (ticdc_source, ticdc_source.errors, ticdc_lakehouse)
