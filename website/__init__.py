"""The site of docs/: a hook of mkdocs, and pictures that commands make."""
