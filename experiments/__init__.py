"""One module a table or figure of the thesis; each writes results/<name>.json and .md."""
