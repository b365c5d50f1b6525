# What formatters and linters look at, for `source`: sources that git knows or would know, and that are there. What is
# built or installed here is none of ours.
# shellcheck shell=bash

# Prints the names that fit the patterns, each with a zero behind it.
sources() {
  git ls-files --cached --others --exclude-standard --deduplicate -- "$@" | while read -r file; do
    [[ ! -e $file ]] || printf '%s\0' "$file"
  done
}
